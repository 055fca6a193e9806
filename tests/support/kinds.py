"""Specs of every kind of mechanism: one for each variant that runs other code, and random ones."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

Spec = dict[str, Any]

SPECS: Final[list[Spec]] = [
    {"kind": "independent"},
    {"kind": "tree", "estimator": "plain"},
    {"kind": "tree", "estimator": "plain", "nodes": "all"},
    {"kind": "tree", "estimator": "online"},
    {"kind": "tree", "estimator": "full"},
    {"kind": "nu", "nu": "auto"},
    {"kind": "nu", "nu": 0.05, "engine": "exact"},
    {"kind": "nu", "nu": 0.05, "engine": "memory"},
    {"kind": "nu", "nu": 0.05, "window": 5},
    {"kind": "optimal-cc"},
    {"kind": "optimal-cc", "window": 4},
    {"kind": "anti-pgd"},
    {"kind": "anti-pgd", "nu": 0.3},
    {"kind": "banded", "bands": 6},
    {"kind": "banded", "bands": 5, "column_normalised": True},
    {"kind": "banded-inverse", "bands": 4},
    {"kind": "blt"},
    {"kind": "blt", "buffers": 2, "objective": "max"},
    {"kind": "decaying"},
    {"kind": "decaying", "final": 0.2, "shape": "geometric", "hold": 3},
    {"kind": "dense"},
    {"kind": "dense", "objective": "max", "engine": "memory"},
    {"kind": "fft"},
    {"kind": "momentum-tree", "momentum": 0.8},
    {"kind": "momentum-tree", "momentum": 0.8, "variant": "proportional"},
    {"kind": "spectral", "eigenvalues": [1.0, 0.1], "learning_rate": 0.2},
    {"kind": "spectral", "eigenvalues": [1.0, 0.1], "learning_rate": 0.2, "window": 6},
]


def fitting(spec: Spec, block: int) -> Spec:
    """The same spec, no wider than a block."""
    return {key: min(value, block) if key in ("bands", "window") else value for key, value in spec.items()}


def random_specs(kind: str, block: int) -> st.SearchStrategy[Spec]:
    """Any settings of a kind for blocks of that many rounds. KeyError for a kind that is not here."""
    width = st.integers(1, block)
    objective, engine = st.sampled_from(["mean", "max"]), st.sampled_from(["fast", "exact", "memory"])
    window = st.one_of(st.none(), width)
    unit = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
    fields: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "independent": {},
        "tree": {"estimator": st.sampled_from(["plain", "online", "full"]), "nodes": st.sampled_from([None, "all"])},
        "nu": {"nu": st.one_of(st.just("auto"), unit), "engine": engine, "window": window},
        "optimal-cc": {"engine": engine, "window": window},
        "anti-pgd": {"nu": unit},
        "banded": {"bands": width, "objective": objective, "column_normalised": st.booleans()},
        "banded-inverse": {"bands": width, "objective": objective},
        "blt": {"buffers": st.one_of(st.just("auto"), st.integers(1, 8)), "objective": objective},
        "decaying": {
            "final": st.floats(0.01, 1),
            "shape": st.sampled_from(["linear", "geometric"]),
            "hold": width,
        },
        "dense": {"objective": objective, "engine": st.sampled_from(["memory", "replay"])},
        "fft": {"engine": st.sampled_from(["memory", "replay"])},
        "momentum-tree": {"momentum": st.floats(0, 0.999), "variant": st.sampled_from(["flat", "proportional"])},
        "spectral": {
            "eigenvalues": st.lists(st.floats(0.01, 1), min_size=1, max_size=3),
            "learning_rate": st.floats(0.01, 0.99),
            "engine": engine,
            "window": window,
        },
    }
    return st.fixed_dictionaries({"kind": st.just(kind), **fields[kind]})

"""The benchmark itself runs: what it measures exists, and what is not installed is named rather than failed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fieldfare import mechanisms


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    path = Path(__file__).parents[3] / "benchmarks" / "mechanisms.py"
    spec = importlib.util.spec_from_file_location("bench_mechanisms", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(path.parent))
        spec.loader.exec_module(module)
        yield module


def test_rounds_builds_and_table(bench: ModuleType) -> None:
    plan = {"kind": "blt", "buffers": 2}
    one = bench.one_round(plan=plan, size=10_000, averaged=1, repeats=2, threads=1, device="cpu", memory=1e6)
    assert one["buffers"] == 2
    assert one["ms"] > 0
    release = bench.one_release(plan=plan, size=10_000, averaged=1, repeats=2, threads=1, memory=1e6)
    assert release["ms"] > 0
    assert release["ratio_add"] == release["grid_ms"] / release["add_ms"]
    built = bench.one_build(plan={"kind": "banded", "bands": 4}, rounds=64, participation=None, threads=1)
    assert built["bound"] == "exact"
    with pytest.raises(SystemExit, match=r"needs 24000000\.0 GB of memory"):
        bench.one_round(plan=plan, size=10**15, averaged=1, repeats=2, threads=1, device="cpu", memory=1e6)
    absent = bench.one_round(
        plan={"kind": "absent"}, size=10, averaged=1, repeats=1, threads=1, device="cpu", memory=1e6
    )
    assert "absent" in absent["skipped"]
    report = {
        "command": "python benchmarks/mechanisms.py",
        "machine": bench.machine(),
        "rounds": [
            {"name": "a", "size": 10_000, "threads": 1, "target": 1.5, **one},
            {"name": "b", "size": 1, "threads": 1, **absent},
        ],
        "releases": [
            {"name": "f", "size": 10_000, "threads": 1, **release},
            {"name": "g", "size": 10_000, "threads": 1, **absent},
        ],
        "builds": [{"name": "c", "rounds": 64, "target_s": 0.1, **built}],
        "peers": [
            {"name": "d", "size": 10, "threads": 2, "skipped": "not installed"},
            {
                "name": "e",
                "size": 10,
                "threads": 1,
                "ms": 6.0,
                "donated_ms": 5.0,
                "ours_ms": 2.0,
                "ours_float32_ms": 1.0,
                "times_faster": 3.0,
                "times_faster_float32": 6.0,
                "load_average": 1.5,
                "target_times": 6.0,
                "peak_mb": 4.0,
                "donated_peak_mb": 3.0,
                "ours_peak_mb": 1.0,
            },
        ],
    }
    text = bench.table(report)
    assert "| 6.0 (5.0) | 2.0 (1.0) | 3.0 (6.0) | 6 | no | 4 (3) | 1 | 1.5 |" in text
    for name in "abcdefg":
        assert f"| {name} |" in text
    mechanisms_tables = importlib.import_module("mechanisms_tables")
    assert mechanisms_tables.at_most(1.6, 1.6) == "1.6 | yes"
    assert mechanisms_tables.at_most(1.61, 1.6) == "1.6 | no"
    assert "| release |" not in bench.table({**report, "releases": []})


def test_every_measured_plan_is_valid(bench: ModuleType) -> None:
    for _, plan, *_ in (*bench.STREAMS, *bench.BUILDS):
        if plan["kind"] in mechanisms.kinds():
            assert mechanisms.parse(plan).kind == plan["kind"]
    assert {name for name, *_ in bench.PEERS} <= {name for name, *_ in bench.STREAMS}


def test_results_are_written_row_by_row_and_added_to(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    report = bench.begin("first", append=True)
    for name, threads, why in (("a", 2, "old"), ("b", 1, "kept"), ("a", 2, "new")):
        bench.keep(report, "rounds", {"name": name, "size": 10, "threads": threads, "skipped": why})
    assert "| a | 1e+01 | 2 | new |" in (tmp_path / "mechanisms.md").read_text()
    again = bench.begin("second", append=True)
    assert [row["skipped"] for row in again["rounds"]] == ["kept", "new"]
    assert again["command"] == "first; second"
    assert bench.begin("third", append=False)["rounds"] == []
    monkeypatch.setattr(bench, "machine", lambda: {**again["machine"], "cores": 1000})
    with pytest.raises(SystemExit, match="this is 1000"):
        bench.begin("fourth", append=True)

"""A certificate convinces a checker that shares no code with Fieldfare, and no forged one does."""

from __future__ import annotations

import base64
import copy
import hashlib
import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldfare.accounting import certification
from fieldfare.accounting.filter import Rectangle
from fieldfare.factorization.released import OnlineTree
from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan

CHECKER = Path(__file__).parents[3] / "docs" / "check_certificate.py"
Certificate = dict[str, Any]

PLAIN: dict[str, Any] = {"run__noise_seed": None}
POISSON = {
    **PLAIN,
    "privacy__adjacency": "add_remove",
    "participation": {"scheme": "poisson", "rate": 0.25},
    "run__min_reports": None,
}
KINDS: dict[str, dict[str, Any]] = {
    "nu": PLAIN,
    "online tree": {**PLAIN, "mechanism": {"kind": "tree", "estimator": "online"}},
    "dense": {**PLAIN, "mechanism": {"kind": "dense", "objective": "max"}},
    "replace_one": {**PLAIN, "privacy__adjacency": "replace_one"},
    "poisson": {**POISSON, "mechanism": {"kind": "independent"}},
    "secret participation": {**POISSON, "mechanism": {"kind": "nu", "nu": 0.1}},
    "balls in bins": {
        **POISSON,
        "privacy__noise_multiplier": 4.0,
        "participation": {"scheme": "balls-in-bins", "bins": 3},
        "mechanism": {"kind": "nu", "nu": 0.1},
    },
    "random allocation": {
        **POISSON,
        "participation": {"scheme": "random-allocation", "bins": 3},
        "mechanism": {"kind": "independent"},
    },
    "b-min-sep": {
        **POISSON,
        "privacy__noise_multiplier": 4.0,
        "participation": {"scheme": "b-min-sep", "separation": 2, "rate": 0.5},
        "mechanism": {"kind": "banded", "bands": 2},
    },
    "banded random allocation": {
        **POISSON,
        "privacy__noise_multiplier": 4.0,
        "participation": {"scheme": "random-allocation", "bins": 3},
        "mechanism": {"kind": "banded", "bands": 2},
    },
    "truncated poisson": {
        **POISSON,
        "participation": {"scheme": "truncated-poisson", "rate": 0.25, "cap": 20, "enrolled": 24},
        "mechanism": {"kind": "independent"},
    },
    "discrete": {**PLAIN, "privacy__rounding": "discrete", "mechanism": {"kind": "tree", "estimator": "plain"}},
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    """One of each kind, from real runs of six rounds."""
    made = {}
    # Few samples: enough for the deepest point to be below the leak of a run.
    patch = pytest.MonkeyPatch()
    patch.setattr(certification, "SAMPLES", (1 << 19, 1 << 18))
    for name, changes in KINDS.items():
        root = tmp_path_factory.mktemp("run")
        a_plan = plan(**changes)
        state_dir = home(root, adjacency=a_plan.privacy.adjacency)
        with Session.begin(state_dir, a_plan, identity_is_stable=True) as session:
            FieldfareStrategy(session).start(LyingGrid(3))
        with Ledger.open(state_dir.ledger) as ledger, ledger.snapshot() as snapshot:
            made[name] = json.loads(certificate(snapshot, session.account.id, state_dir.root))
    patch.undo()
    return made


@cache
def checker() -> Any:
    spec = importlib.util.spec_from_file_location("check_certificate", CHECKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refused(forged: Certificate) -> bool:
    try:
        checker().check(forged)
    except (checker().Refused, KeyError, TypeError, ValueError, IndexError, np.linalg.LinAlgError):
        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_accepts_it_without_fieldfare(
    kind: str, certificates: dict[str, Certificate], tmp_path: Path
) -> None:
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(certificates[kind]))
    alone = (
        "import runpy, sys; sys.argv = sys.argv[1:]\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: assert not any(name.startswith('fieldfare') for name in sys.modules)\n"
    )
    command = [sys.executable, "-I", "-c", alone, str(CHECKER), str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.startswith("yes: (50.0, 1e-5) for every user of people; this run epsilon ")


def test_it_names_no_user_and_is_canonical(certificates: dict[str, Certificate]) -> None:
    for made in certificates.values():
        text = json.dumps(made)
        assert "user-" not in text
        assert all(set(p) == {"rounds", "users"} for p in made["accounting"].get("patterns", []))
    assert "patterns" not in certificates["secret participation"]["accounting"]
    assert certificates["poisson"]["accounting"] == {"patterns": []}


def change(path: str, to: Callable[[Any], Any]) -> Callable[[Certificate], None]:
    def forge(made: Certificate) -> None:
        *parents, last = path.split(".")
        for name in parents:
            made = made[name]
        made[last] = to(made[last])

    return forge


def times(share: float) -> Callable[[Any], Any]:
    return lambda value: value * share


def coefficient(made: Certificate) -> None:
    """One number of B, with its digest made to fit: more correlation than was paid for."""
    ((form, stored),) = made["noising"].items()
    values = np.frombuffer(base64.b64decode(stored["base64"]), "<f8").copy()
    values[1 if form == "toeplitz" else made["run"]["rounds"]] *= 1.1
    raw = values.tobytes()
    stored |= {"base64": base64.b64encode(raw).decode(), "sha256": hashlib.sha256(raw).hexdigest()}


def correlation(made: Certificate) -> None:
    """Each row of noise holds a tenth of the one before."""
    made["noising"] = {"toeplitz": array([1.0, 0.1, *[0.0] * (made["run"]["rounds"] - 2)])}


def stale_digest(made: Certificate) -> None:
    ((_, stored),) = made["noising"].items()
    raw = np.frombuffer(base64.b64decode(stored["base64"]), "<f8") * 2
    stored["base64"] = base64.b64encode(raw.tobytes()).decode()


def shifted_pattern(made: Certificate) -> None:
    made["accounting"]["patterns"][0]["rounds"].append(made["run"]["rounds"])


FORGERIES: list[tuple[str, str, Callable[[Certificate], None]]] = [
    ("nu", "coefficient", coefficient),
    ("nu", "stale digest", stale_digest),
    ("dense", "coefficient", coefficient),
    ("nu", "sigma", change("noise.multiplier", times(0.999))),
    ("nu", "sigma 0", change("noise.multiplier", lambda _: 0.0)),
    ("nu", "rounding not paid", change("noise.rounding_mu_squared", lambda _: 1e-3)),
    ("nu", "mu^2", change("price.mu_squared", times(1 - 1e-6))),
    ("nu", "epsilon.hi", change("epsilon.hi", lambda e: e - 1e-6)),
    ("nu", "epsilon.lo", change("epsilon.lo", lambda e: e + 1e-6)),
    ("nu", "D after the fact", change("population.leak", lambda _: 1e-6)),
    ("nu", "D = delta", change("population.leak", lambda _: 1e-5)),
    ("nu", "M", change("population.mu_squared", times(1.001))),
    ("nu", "epsilon promised", change("population.epsilon", times(0.999))),
    ("nu", "delta promised", change("population.delta", times(0.99))),
    ("nu", "pattern after the end", shifted_pattern),
    ("nu", "pattern of no user", change("accounting.patterns", lambda p: [{**p[0], "users": 0}, *p[1:]])),
    ("nu", "more rounds than planned", change("run.horizon", lambda n: n - 1)),
    ("nu", "more rounds than B", change("run.rounds", lambda n: n + 1)),
    ("nu", "nonces", change("nonces", lambda n: {**n, "format": 1, "count": 5})),
    ("nu", "one nonce twice", change("nonces", lambda n: {**n, "format": 1, "count": 6, "distinct": False})),
    ("nu", "sum of mu^2", change("sums.mu_squared", times(0.99))),
    ("nu", "overspent", change("sums.mu_squared", times(1e6))),
    ("nu", "unknown key", lambda made: made.update(more=1)),
    ("nu", "format", change("format", lambda _: "fieldfare-certificate/2")),
    ("replace_one", "factor", change("population.factor", lambda _: 1.0)),
    ("replace_one", "adjacency", change("population.adjacency", lambda _: "zero_out")),
    ("secret participation", "claimed maximum", change("accounting.worst.square", times(1 - 1e-6))),
    ("secret participation", "separation", change("accounting.worst.separation", lambda _: 2)),
    ("secret participation", "count", change("accounting.worst.count", lambda k: k - 1)),
    ("poisson", "mu", change("price.mu_squared", lambda s: (math.sqrt(s) - 1e-3) ** 2)),
    ("poisson", "rate", change("price.sampled.rate", times(1.01))),
    ("poisson", "multiplier", change("price.sampled.multiplier", times(0.99))),
    ("poisson", "rounds", change("price.sampled.count", lambda n: n + 1)),
    ("poisson", "zero_out amplified", change("population.adjacency", lambda _: "zero_out")),
    ("poisson", "leak omitted", change("price.leak", lambda _: 0.0)),
    ("poisson", "sum of leaks", change("sums.leak", lambda _: 0.0)),
    ("balls in bins", "mu", change("price.mu_squared", times(0.998))),
    ("balls in bins", "points", change("price.certified.points", lambda p: [[e, d * 0.7] for e, d in p])),
    ("balls in bins", "bins", change("price.certified.bins", lambda b: b - 1)),
    ("balls in bins", "sigma", change("noise.multiplier", times(0.9))),
    ("balls in bins", "zero_out amplified", change("population.adjacency", lambda _: "zero_out")),
    ("balls in bins", "leak omitted", change("price.leak", lambda _: 0.0)),
    ("b-min-sep", "rate", change("price.certified.rate", lambda _: 0.9)),
    ("b-min-sep", "points", change("price.certified.points", lambda p: [[e, d * 0.7] for e, d in p])),
    ("b-min-sep", "more bands", correlation),
    ("banded random allocation", "bins", change("price.certified.bins", lambda b: b - 1)),
    ("banded random allocation", "points", change("price.certified.points", lambda p: [[e, d * 0.7] for e, d in p])),
    ("random allocation", "mu", change("price.mu_squared", lambda s: (math.sqrt(s) - 1e-3) ** 2)),
    ("random allocation", "bins", change("price.sampled.bins", lambda b: b - 1)),
    ("random allocation", "multiplier", change("price.sampled.multiplier", times(0.99))),
    ("random allocation", "blocks", change("price.sampled.count", lambda n: n + 1)),
    ("random allocation", "correlated noise", correlation),
    ("random allocation", "less noise than is charged", change("noise.multiplier", times(0.99))),
    ("poisson", "less noise than is charged", change("noise.multiplier", times(0.99))),
    ("truncated poisson", "fewer rounds", change("price.sampled.count", lambda n: n - 1)),
    ("truncated poisson", "mu", change("price.mu_squared", lambda s: (math.sqrt(s) - 1e-3) ** 2)),
    ("truncated poisson", "cap", change("price.sampled.cap", lambda cap: cap - 8)),
    ("truncated poisson", "enrolled", change("price.sampled.enrolled", lambda n: 3 * n)),
    ("truncated poisson", "rate", change("price.sampled.rate", times(1.01))),
    ("discrete", "leak omitted", change("price.leak", lambda _: 0.0)),
    ("discrete", "scale", change("price.discrete.scale", lambda _: 6)),
    ("discrete", "values", change("price.discrete.values", times(1e3))),
]


@pytest.mark.parametrize(("kind", "what", "forge"), FORGERIES, ids=[f"{k}: {w}" for k, w, _ in FORGERIES])
def test_a_forgery_is_refused(
    kind: str, what: str, forge: Callable[[Certificate], None], certificates: dict[str, Certificate]
) -> None:
    forged = copy.deepcopy(certificates[kind])
    assert not refused(forged)
    forge(forged)
    assert refused(forged), what


# -- figures of the specification, as certificates built by hand ------------------------------------------------------


def array(values: Any) -> dict[str, Any]:
    raw = np.asarray(values, "<f8").tobytes()
    encoded = base64.b64encode(raw).decode()
    return {"base64": encoded, "sha256": hashlib.sha256(raw).hexdigest(), "shape": list(np.shape(values))}


def by_hand(**parts: Any) -> Certificate:
    epsilon, delta = 10.0, parts.pop("delta")
    m = Rectangle.of(epsilon, delta, 0.0).mu_squared
    terms = {"adjacency": "zero_out", "delta": delta, "epsilon": epsilon, "factor": 1.0, "leak": 0.0, "name": "people"}
    price = parts["price"]
    return {
        "assumptions": {},
        "clip": {},
        "format": "fieldfare-certificate/1",
        "journal": {},
        "nonces": {"count": parts["run"]["rounds"], "digest": "", "distinct": True, "format": 1},
        "population": {**terms, "mu_squared": m},
        "sums": dict(price),
        **parts,
    }


def nu_of_the_specification() -> Certificate:
    t = np.arange(1, 8)
    beta = np.concatenate([[1.0], np.cumprod(0.9 * (t - 1.5) / t)])
    return by_hand(
        delta=1e-5,
        run={"id": "nu", "plan_digest": "", "rounds": 8, "horizon": 8},
        noise={"multiplier": 3.0, "rounding_mu_squared": 0.0},
        noising={"toeplitz": array(beta)},
        accounting={"patterns": [{"rounds": [0, 2, 4, 6], "users": 1}, {"rounds": [0, 3], "users": 2}]},
        price={"mu_squared": 1.0734692082466977, "leak": 0.0},
        epsilon={"lo": 4.56078894, "hi": 4.5607889438412410},
    )


def gboard_of_the_specification() -> Certificate:
    square, exact = OnlineTree(2000).worst(314, 6)
    assert exact
    assert square == pytest.approx(70.30117314826, rel=1e-10)
    witness = [20, 340, 660, 980, 1364, 1706]
    return by_hand(
        delta=1e-10,
        run={"id": "tree", "plan_digest": "", "rounds": 2000, "horizon": 2000},
        noise={"multiplier": 7.0, "rounding_mu_squared": 0.0},
        noising={"tree": "online"},
        accounting={"worst": {"separation": 314, "count": 6, "square": square, "witness": witness}},
        price={"mu_squared": square / 49, "leak": 0.0},
        epsilon={"lo": 7.99067, "hi": 7.990679},
    )


def test_the_nu_run_of_the_specification() -> None:
    made = nu_of_the_specification()
    assert not refused(made)
    for forge in (
        change("price.mu_squared", times(1 - 1e-8)),
        change("epsilon.hi", lambda e: e - 1e-6),
        change("nonces.count", lambda n: n - 1),
        change("noise.multiplier", times(0.9999)),
        coefficient,
    ):
        forged = copy.deepcopy(made)
        forge(forged)
        assert refused(forged)
    shortened = copy.deepcopy(made)
    shortened["accounting"]["patterns"][0]["rounds"].remove(4)
    assert not refused(shortened), "a smaller pattern only makes the claim looser"


def test_the_leading_block_of_the_whole_horizon_is_not_the_charge_of_fewer_rounds() -> None:
    """The online tree after 6 of 8 rounds costs (B_6 B_6^T)^-1; another matrix's charge is refused."""
    check = checker()
    whole = check.online_tree(8)
    g8 = np.linalg.inv(whole @ whole.T)[:6, :6]
    g6 = np.linalg.inv(whole[:6] @ whole[:6].T)
    assert np.abs(g6).sum() < np.abs(g8).sum() * (1 - 1e-3)
    half = np.linalg.inv(check.online_tree(6) @ check.online_tree(6).T)
    np.testing.assert_allclose(half, g6, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_the_online_tree_of_the_specification() -> None:
    made = gboard_of_the_specification()
    assert "epsilon 7.9906" in checker().check(made)
    low = copy.deepcopy(made)
    low["accounting"]["worst"]["square"] = 69.9
    low["price"]["mu_squared"] = low["sums"]["mu_squared"] = 69.9 / 49
    near = copy.deepcopy(made)
    near["accounting"]["worst"]["witness"][1] = 320
    for forged in (low, near):
        with pytest.raises(checker().Refused):
            checker().check(forged)

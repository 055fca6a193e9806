"""A certificate convinces a checker that shares no code with Fieldfare, and no forged one does."""

from __future__ import annotations

import base64
import copy
import hashlib
import importlib.util
import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fieldfare.accounting import certification
from fieldfare.errors import LedgerError, OldCopy
from fieldfare.factorization.released import WhitenedTree
from fieldfare.signatures import public_key
from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.ledger import Ledger, merkle
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan

CHECKER = Path(os.environ.get("FIELDFARE_CHECKER", Path(__file__).parents[3] / "docs")) / "check_certificate.py"
"""`make mutants` names a folder with a broken one."""
Certificate = dict[str, Any]

PLAIN: dict[str, Any] = {"run__noise_seed": None}
POISSON = {
    **PLAIN,
    "privacy__adjacency": "add_remove",
    "participation": {"scheme": "poisson", "rate": 0.25},
    "run__min_reports": None,
}
CUT = "random allocation, cut"
KINDS: dict[str, dict[str, Any]] = {
    "nu": PLAIN,
    "calibrated": {**PLAIN, "privacy__noise_multiplier": None, "privacy__epsilon": 8.0},
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
    CUT: {
        **POISSON,
        "participation": {"scheme": "random-allocation", "bins": 4},
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
OTHERS: dict[str, dict[str, Any]] = {
    kind: {**PLAIN, "mechanism": {"kind": kind, **more}}
    for kind, more in {
        "independent": {},
        "optimal-cc": {},
        "blt": {},
        "banded": {"bands": 2},
        "banded-inverse": {"bands": 2},
        "fft": {},
        "anti-pgd": {},
        "momentum-tree": {},
        "spectral": {"eigenvalues": [0.5, 1.0], "learning_rate": 0.5},
    }.items()
} | {
    "full tree": {**PLAIN, "mechanism": {"kind": "tree", "estimator": "full"}},
    "plain tree": {**PLAIN, "mechanism": {"kind": "tree", "estimator": "plain"}},
    "restarts": {**PLAIN, "mechanism": {"kind": "nu", "restart_every": 3}},
    "balls in bins, independent": {
        **POISSON,
        "participation": {"scheme": "balls-in-bins", "bins": 3},
        "mechanism": {"kind": "independent"},
    },
    "cyclic poisson": {
        **POISSON,
        "participation": {"scheme": "cyclic-poisson", "groups": 2, "rate": 0.5},
        "mechanism": {"kind": "banded", "bands": 2},
    },
}
"""Kinds whose certificates only the slow tests forge."""


class Certificates(dict[str, Certificate]):
    """One of each kind, from a real run of six rounds, made when a test first asks for it."""

    folder: Callable[[str], Path]

    def __missing__(self, kind: str) -> Certificate:
        with pytest.MonkeyPatch.context() as patch:
            # Few samples: enough for the deepest point to be below the leak of a run.
            patch.setattr(certification, "SAMPLES", (1 << 19, 1 << 18))
            self[kind] = json.loads(certificate_of(kind, self.folder("run")))
        return self[kind]


MADE = Certificates()
"""Those of this process: the tests of the second checker ask for the same."""


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    MADE.folder = tmp_path_factory.mktemp
    return MADE


def certificate_of(kind: str, root: Path) -> str:
    """The certificate of a real run of six rounds under `root`, as it is written."""
    a_plan = plan(**{**KINDS, **OTHERS}[kind])
    state_dir = home(root, adjacency=a_plan.privacy.adjacency)
    with Session.begin(state_dir, a_plan, identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(3))
    with Ledger.open(state_dir.ledger) as ledger, ledger.snapshot() as snapshot:
        return certificate(snapshot, session.account.id, state_dir)


@cache
def checker() -> Any:
    spec = importlib.util.spec_from_file_location("check_certificate", CHECKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(CHECKER.parent))
    return module


def verdict(made: Certificate, key: str | None = None) -> str:
    """What the checker says, or "no"."""
    wrong = (checker().Refused, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, StopIteration)
    try:
        return str(checker().check(made, key))
    except (*wrong, zlib.error, RuntimeError, np.linalg.LinAlgError):
        return "no"


def refused(forged: Certificate) -> bool:
    return verdict(forged) == "no"


@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_accepts_it_without_fieldfare(kind: str, certificates: Certificates, tmp_path: Path) -> None:
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
    assert checked.stdout.endswith(f"; log key {certificates[kind]['key'][:16]}\n")


@pytest.mark.parametrize("kind", KINDS)
def test_it_names_no_user_and_is_canonical(kind: str, certificates: Certificates) -> None:
    made = certificates[kind]
    assert "user-" not in json.dumps(made)
    assert bool(made["participants"]) == (json.loads(made["plan"])["privacy"]["adjacency"] != "add_remove")


THEOREMS = {
    **dict.fromkeys(("nu", "calibrated", "online tree", "dense", "replace_one", "secret participation"), "filter gram"),
    **dict.fromkeys(("poisson", "random allocation", CUT, "truncated poisson"), "filter sampled"),
    **dict.fromkeys(("balls in bins", "b-min-sep", "banded random allocation"), "certified filter"),
    "discrete": "discrete filter gram",
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_theorems_that_a_charge_rests_on_are_named(kind: str, certificates: Certificates) -> None:
    assert " ".join(certificates[kind]["theorems"]) == THEOREMS[kind]


# -- forgeries -------------------------------------------------------------------------------------------------------

SAID = re.compile(
    r"yes: \(([0-9.]+), ([^)]+)\) for every user of (.+?); this run epsilon ([0-9.e+-]+).*; log key (\w+)"
)


def claims_less(verdict_of_forged: str, honest: str) -> str:
    """What a forgery that is believed gains: "" where it is refused, or says no less than the honest one."""
    said, before = SAID.fullmatch(verdict_of_forged), SAID.fullmatch(honest)
    assert before is not None
    if said is None:
        return ""
    lower = float(said[1]) < float(before[1]) or float(said[4]) < float(before[4]) * (1 - 1e-6)
    other = (said[2], said[3], said[5]) != (before[2], before[3], before[5])
    return f"{said[0]} where {before[0]} is right" if lower or other else ""


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a document, containers too."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from leaves(inner, (*path, key))


def altered(value: Any) -> Iterator[Any]:
    """Other values of the same type, and none."""
    yield None
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (0, 1, -value, value * 0.5, value * 0.999, value * 1.001, value * 2, value + 1, value - 1)
    elif isinstance(value, str):
        yield from ("", value[:-1], value[::-1], value + "0")
        yield from (value[:i] + chr(ord(value[i]) ^ 1) + value[i + 1 :] for i in {0, len(value) // 2} if i < len(value))
        yield from (value.replace(a, b, 1) for a, b in itertools.permutations("12345", 2) if a in value)
    elif isinstance(value, list):
        yield from ([], value[1:], value[:-1], [*value, *value[-1:]], value[::-1])
    elif isinstance(value, dict):
        yield {}
        yield from ({k: v for k, v in value.items() if k != gone} for gone in value)
        yield {**value, "more": 1}


def with_value(made: Certificate, path: tuple[Any, ...], value: Any) -> Certificate:
    forged = copy.deepcopy(made)
    inner: Any = forged
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return forged


def all_alterations(made: Certificate) -> list[tuple[tuple[Any, ...], Any]]:
    def at(path: tuple[Any, ...]) -> Any:
        inner: Any = made
        for key in path:
            inner = inner[key]
        return inner

    return [(path, value) for path in leaves(made) if path for value in altered(at(path)) if value != at(path)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_altered_field_lowers_what_is_claimed(kind: str, certificates: Certificates) -> None:
    """A draw of all alterations, and every one of the fields that are not rows of the log."""
    made = certificates[kind]
    honest, every = verdict(made), all_alterations(made)
    few = [each for each in every if each[0][0] not in ("rows", "others", "participants", "assumptions")]
    drawn = random.Random(kind).sample(every, 150)
    for path, value in [*(few if "certified" not in made["theorems"] else few[::9]), *drawn]:
        forged = with_value(made, path, value)
        assert not claims_less(verdict(forged), honest), (path, value)
        if path[0] == "noise" or path[:2] == ("price", "discrete"):
            assert refused(forged), (path, value)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_no_alteration_at_all_lowers_what_is_claimed(kind: str, certificates: Certificates) -> None:
    made = certificates[kind]
    honest = verdict(made)
    for path, value in all_alterations(made):
        assert not claims_less(verdict(with_value(made, path, value)), honest), (path, value)


def change(path: str, to: Callable[[Any], Any]) -> Callable[[Certificate], None]:
    def forge(made: Certificate) -> None:
        *parents, last = path.split(".")
        for name in parents:
            made = made[name]
        made[last] = to(made[last])

    return forge


def times(share: float) -> Callable[[Any], Any]:
    return lambda value: value * share


def array(values: Any) -> dict[str, Any]:
    raw = np.asarray(values, "<f8").tobytes()
    encoded = base64.b64encode(raw).decode()
    return {"base64": encoded, "sha256": hashlib.sha256(raw).hexdigest(), "shape": list(np.shape(values))}


def coefficient(made: Certificate) -> None:
    """One number of B, with its digest made to fit: more correlation than was paid for."""
    ((form, stored),) = made["noising"].items()
    values = np.frombuffer(base64.b64decode(stored["base64"]), "<f8").copy()
    values[1 if form == "toeplitz" else stored["shape"][1]] *= 1.1
    made["noising"] = {form: array(values.reshape(stored["shape"]))}


def correlation(made: Certificate) -> None:
    """Each row of noise holds a tenth of the one before."""
    made["noising"] = {"toeplitz": array([1.0, 0.1, *[0.0] * 4])}


def stale_digest(made: Certificate) -> None:
    ((_, stored),) = made["noising"].items()
    raw = np.frombuffer(base64.b64decode(stored["base64"]), "<f8") * 2
    stored["base64"] = base64.b64encode(raw.tobytes()).decode()


def twice_the_noise(made: Certificate) -> None:
    """All stated numbers fit each other; the log says another charge."""
    made["noise"]["multiplier"] *= 2
    made["price"]["mu_squared"] /= 3.99  # what the resolution of floats costs stays
    made["epsilon"]["lo"] = 0.0


FORGERIES: list[tuple[str, str, Callable[[Certificate], None]]] = [
    ("calibrated", "twice the noise", twice_the_noise),
    ("nu", "coefficient", coefficient),
    ("nu", "stale digest", stale_digest),
    ("dense", "coefficient", coefficient),
    ("nu", "sigma", change("noise.multiplier", times(0.999))),
    ("calibrated", "twice the noise, at the log's charge", change("noise.multiplier", times(2))),
    ("calibrated", "a little more noise", change("noise.multiplier", times(1 + 1e-12))),
    ("discrete", "more cells", change("price.discrete.scale", times(2))),
    ("discrete", "fewer values", change("price.discrete.values", lambda n: n - 1)),
    ("nu", "discrete noise", lambda made: made["price"].update(discrete={"scale": 2000, "values": 60})),
    ("nu", "sigma 0", change("noise.multiplier", lambda _: 0.0)),
    ("nu", "mu^2", change("price.mu_squared", times(1 - 1e-6))),
    ("nu", "epsilon.hi", change("epsilon.hi", lambda e: e - 1e-6)),
    ("nu", "epsilon.lo", change("epsilon.lo", lambda e: e + 1e-6)),
    ("nu", "a key that is printed as nothing", change("key", lambda key: " " * 16 + key)),
    ("nu", "unknown key", lambda made: made.update(more=1)),
    ("nu", "format", change("format", lambda _: "fieldfare-certificate/1")),
    ("nu", "a round's users left out", change("participants", lambda p: [p[1], *p[1:]])),
    ("nu", "a theorem left out", change("theorems", lambda _: ["gram"])),
    ("secret participation", "claimed maximum", change("accounting.worst.square", times(1 - 1e-6))),
    ("secret participation", "separation", change("accounting.worst.separation", lambda _: 2)),
    ("secret participation", "count", change("accounting.worst.count", lambda k: k - 1)),
    ("poisson", "mu", change("price.mu_squared", lambda s: (math.sqrt(s) - 1e-3) ** 2)),
    ("poisson", "leak omitted", change("price.leak", lambda _: 0.0)),
    ("balls in bins", "mu", change("price.mu_squared", times(0.998))),
    ("balls in bins", "sigma", change("noise.multiplier", times(0.9))),
    ("balls in bins", "leak omitted", change("price.leak", lambda _: 0.0)),
    ("b-min-sep", "more bands", correlation),
    ("random allocation", "mu", change("price.mu_squared", lambda s: (math.sqrt(s) - 1e-3) ** 2)),
    ("random allocation", "correlated noise", correlation),
    (CUT, "mu", change("price.mu_squared", lambda s: (math.sqrt(s) - 1e-3) ** 2)),
    ("random allocation", "less noise than is charged", change("noise.multiplier", times(0.99))),
    ("poisson", "less noise than is charged", change("noise.multiplier", times(0.99))),
    ("discrete", "leak omitted", change("price.leak", lambda _: 0.0)),
    ("discrete", "scale", change("price.discrete.scale", lambda _: 6)),
    ("discrete", "values", change("price.discrete.values", times(1e3))),
]


@pytest.mark.parametrize(("kind", "what", "forge"), FORGERIES, ids=[f"{k}: {w}" for k, w, _ in FORGERIES])
def test_a_forgery_is_refused(
    kind: str, what: str, forge: Callable[[Certificate], None], certificates: Certificates
) -> None:
    forged = copy.deepcopy(certificates[kind])
    assert not refused(forged)
    forge(forged)
    assert refused(forged), what


# -- a forger who makes everything fit anew, but has not the ledger's key ----------------------------------------------

HASHED = ("action", "actor", "at", "body", "event", "id", "population", "round", "run")
FORGER = bytes(range(32))


def sealed(made: Certificate, rows: list[dict[str, Any]], key: bytes = FORGER) -> Certificate:
    """`made` with these rows as the whole of a log: chained, hashed and signed anew, as docs/certificate.md says."""
    previous, shown, hashes = "ab" * 32, [], []
    for number, row in enumerate(rows, start=1):
        linked = {**row, "id": number, "body": json.dumps(row["body"], sort_keys=True, separators=(",", ":"))}
        content = json.dumps({name: linked[name] for name in HASHED}, sort_keys=True, separators=(",", ":"))
        hashes.append(hashlib.sha256(bytes.fromhex(previous) + content.encode()).digest())
        shown.append([*(linked[name] for name in HASHED), previous])
        previous = hashes[-1].hex()
    line = f"rows {rows[0]['population']} {made['run']} {len(rows)} {hashlib.sha256(b''.join(hashes)).hexdigest()}"
    note = merkle.checkpoint("ab" * 16, len(rows), merkle.Tree(hashes).root, key, [line])
    return {**made, "rows": shown, "others": [], "checkpoint": note, "key": public_key(key)}


def rows_of(made: Certificate) -> list[dict[str, Any]]:
    rows = [dict(zip((*HASHED, "previous"), each, strict=True)) for each in made["rows"]]
    return [{**row, "body": json.loads(row["body"])} for row in rows]


Edit = Callable[[dict[str, Any]], dict[str, Any]]


def in_rows(action: str, edit: Edit, kind: str = "poisson") -> tuple[str, str, Callable[[Certificate], Certificate]]:
    def forge(made: Certificate) -> Certificate:
        rows = [{**r, "body": edit(r["body"]) if r["action"] == action else r["body"]} for r in rows_of(made)]
        return sealed(made, rows)

    return kind, action, forge


def planned(change: Callable[[list[Any]], list[Any]]) -> Edit:
    def edit(body: dict[str, Any]) -> dict[str, Any]:
        loss = json.loads(body["planned"])
        loss["sampled"] = [change(each) for each in loss["sampled"]]
        return {**body, "planned": json.dumps(loss)}

    return edit


def certified(change: Callable[[list[list[float]]], list[list[float]]]) -> Edit:
    def edit(body: dict[str, Any]) -> dict[str, Any]:
        loss = json.loads(body["planned"])
        loss["certified"] = [{**each, "points": change(each["points"])} for each in loss["certified"]]
        return {**body, "planned": json.dumps(loss)}

    return edit


def lower(points: list[list[float]]) -> list[list[float]]:
    return [[epsilon, delta * 0.7] for epsilon, delta in points]


def lower_between(points: list[list[float]]) -> list[list[float]]:
    """Every point but each eighth of the curve."""
    step = max(1, len(points) // 8)
    # Deeper points would fall below the certificate's own failure probability.
    share = [
        1.0 if i % step == 0 or d < 1e-6 else min(1.0, max(0.85, 1.015 - 0.015 * i)) for i, (_, d) in enumerate(points)
    ]
    return [[epsilon, delta * by] for (epsilon, delta), by in zip(points, share, strict=True)]


def without_cut(instead: Callable[[dict[str, Any]], list[Any]]) -> Edit:
    """Other events in the place of the last, cut block."""

    def edit(body: dict[str, Any]) -> dict[str, Any]:
        loss = json.loads(body["planned"])
        whole, cut = loss["sampled"]
        assert (whole["count"], cut["rounds"]) == (1, 2)
        return {**body, "planned": json.dumps({**loss, "sampled": [whole, *instead(cut)]})}

    return edit


def nothing_spent(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "spent": json.dumps({"mu_squared": 0.0, "sampled": [], "certified": []})}


def half_the_price(body: dict[str, Any]) -> dict[str, Any]:
    """In the log alone, whose word the population's sum takes; the certificate's own price stays."""
    price = json.loads(body["price"])
    return {**body, "price": json.dumps({**price, "mu_squared": price["mu_squared"] / 2})}


def with_starts(*squares: float) -> Callable[[Certificate], Certificate]:
    """With rows that start another run, once for each of these prices."""

    def forge(made: Certificate) -> Certificate:
        rows = rows_of(made)
        (start,) = [row for row in rows if row["action"] == "run.start"]
        prices = [json.dumps({"mu_squared": square, "leak": 0.0}) for square in squares]
        more = [{**start, "run": "another", "body": {**start["body"], "price": price}} for price in prices]
        return sealed(made, [*rows, *more])

    return forge


def named(name: str) -> Callable[[Certificate], Certificate]:
    return lambda made: sealed(made, [{**row, "population": name} for row in rows_of(made)])


def with_rows(*more: tuple[str, str | None, Any]) -> Callable[[Certificate], Certificate]:
    """With rows at the end, of these actions, runs and bodies."""

    def forge(made: Certificate) -> Certificate:
        rows = rows_of(made)
        return sealed(made, [*rows, *({**rows[0], "action": a, "run": run, "body": body} for a, run, body in more)])

    return forge


def charge(square: float, key: str = "a key") -> dict[str, str]:
    """The body of a row with a charge beside the runs."""
    return {"key": key, "price": json.dumps({"mu_squared": square, "leak": 0.0})}


def with_ends(*squares: float) -> Callable[[Certificate], Certificate]:
    """With rows of another run, which ends once for each of these."""
    price = json.dumps({"mu_squared": 1e-3, "leak": 0.0})
    ends = [json.dumps({"mu_squared": square, "sampled": [], "certified": []}) for square in squares]
    start = ("run.start", "another", {"price": price, "planned": ends[0]})
    return with_rows(start, *(("run.finish", "another", {"spent": end}) for end in ends))


def without_one_nonce(made: Certificate) -> Certificate:
    rows = rows_of(made)
    [row for row in rows if row["action"] == "round.commit"][2]["body"]["nonce"] = ""
    return sealed(made, rows)


def infinite_noise(made: Certificate) -> Certificate:
    """Of a plan that leaves it to the calibration: rounds without a price."""
    rows, nothing = rows_of(made), json.dumps({"mu_squared": 1e-3, "sampled": []})
    for row in rows:
        row["body"] |= {name: nothing for name in ("planned", "spent") if name in row["body"]}
        if row["action"] == "run.start":
            row["body"] |= {"price": charge(1e-3)["price"], "noise": {"multiplier": math.inf}}
    price, ends = {"leak": 0.0, "mu_squared": 1e-3}, {"lo": 0.0, "hi": 50.0}
    return sealed({**made, "noise": {"multiplier": math.inf}, "price": price, "epsilon": ends}, rows)


def another_accounting(made: Certificate) -> Certificate:
    rows = rows_of(with_starts(1e6)(made))
    rows[0]["body"]["accounting"] = "none"
    return sealed(made, rows)


def later_noise(made: Certificate) -> Certificate:
    """A sampled run whose first round has noise of the second, too: under one band, none of which is left."""
    values = np.eye(6)
    values[0, 1] = 1.0
    return sealed({**made, "noising": {"dense": array(values)}}, rows_of(made))


def users_of_no_double(made: Certificate) -> Certificate:
    """User 2^60 + 2^30 in each round: as doubles, which round at each sum, another user in each."""
    raw, rows = [], rows_of(made)
    commits = [row for row in rows if row["action"] == "round.commit"]
    for t, row in enumerate(commits):
        text, first = b"", 2**60 + (t << 20)
        steps = [first, *[154] * (3 * t), 2**60 + 2**30 - first - 462 * t]
        for value in steps:
            while value > 127:
                text, value = text + bytes([value & 127 | 128]), value >> 7
            text += bytes([value])
        raw.append(b"\x01" + zlib.compress(text))
        row["body"] |= {"participants": hashlib.sha256(raw[-1]).hexdigest(), "participant_count": len(steps)}
    return sealed({**made, "participants": [base64.b64encode(each).decode() for each in raw]}, rows)


REDERIVED: dict[str, tuple[str, str, Callable[[Certificate], Certificate]]] = {
    "eight rounds charged as one": in_rows("run.start", planned(lambda e: [*e[:2], 1])),
    "another rate": in_rows("run.start", planned(lambda e: [0.01, *e[1:]])),
    "more noise than was drawn": in_rows("run.start", planned(lambda e: [e[0], 2 * e[1], e[2]])),
    "another plan": in_rows("run.start", lambda body: {**body, "plan": "ab" * 32}),
    "fewer rounds": in_rows("run.start", lambda body: {**body, "rounds": 3}),
    "one nonce twice": in_rows("round.commit", lambda body: {**body, "nonce": "ab" * 16}),
    "two blocks called one": in_rows("run.start", planned(lambda e: {**e, "bins": 6, "count": 1}), "random allocation"),
    "allocation as one Poisson round": in_rows(
        "run.start", planned(lambda e: [0.01, e["noise_multiplier"], 1]), "random allocation"
    ),
    "the cut block forgotten": in_rows("run.start", without_cut(lambda e: []), CUT),
    "fewer rounds of the cut block": in_rows("run.start", without_cut(lambda e: [{**e, "rounds": 1}]), CUT),
    "two cut blocks for one whole": in_rows("run.start", without_cut(lambda e: [e, e, e]), CUT),
    "a cut block counted twice": in_rows("run.start", without_cut(lambda e: [{**e, "count": 2}]), CUT),
    "more noise in the cut block": in_rows(
        "run.start", without_cut(lambda e: [{**e, "noise_multiplier": 2 * e["noise_multiplier"]}]), CUT
    ),
    "a cut block of more bins": in_rows("run.start", without_cut(lambda e: [{**e, "bins": 400}]), CUT),
    "more enrolled": in_rows("run.start", planned(lambda e: {**e, "enrolled": 20}), "truncated poisson"),
    "a curve that is too low": in_rows("run.start", certified(lower), "balls in bins"),
    "a curve that is too low between": in_rows("run.start", certified(lower_between), "balls in bins"),
    "a chained curve that is too low": in_rows("run.start", certified(lower), "b-min-sep"),
    "an allocated curve that is too low": in_rows("run.start", certified(lower), "banded random allocation"),
    "other participants": in_rows("round.commit", lambda body: {**body, "participants": "ab" * 32}, "nu"),
    "other noise": in_rows("run.start", lambda body: {**body, "noise": {"multiplier": 9.0}}, "calibrated"),
    "other cells": in_rows("run.start", lambda b: {**b, "noise": {**b["noise"], "scale": 9_000}}, "discrete"),
    "no cells": in_rows("run.start", lambda b: {**b, "noise": {"multiplier": b["noise"]["multiplier"]}}, "discrete"),
    "half the factor": in_rows("population.create", lambda b: {**b, "adjacency": "zero_out"}, "replace_one"),
    "D after the fact": in_rows("population.create", lambda b: {**b, "leak": b["delta"]}, "nu"),
    "a round dropped": ("nu", "", lambda made: sealed(made, [r for r in rows_of(made) if r["round"] != 3])),
    "nothing spent": in_rows("run.finish", nothing_spent, "nu"),
    "nothing spent, twice the sensitivity": in_rows("run.finish", nothing_spent, "replace_one"),
    "nothing spent of sampled rounds": in_rows("run.finish", nothing_spent),
    "nothing spent in secret": in_rows("run.finish", nothing_spent, "secret participation"),
    "nothing spent of a curve": in_rows("run.finish", nothing_spent, "balls in bins"),
    "half the price of sampled rounds": in_rows("run.start", half_the_price),
    "half the price of a curve": in_rows("run.start", half_the_price, "balls in bins"),
    "a run that starts twice": ("nu", "", with_starts(1e6, 0.0)),
    "a charge below nothing": ("nu", "", with_starts(-1e6)),
    "a name that writes a verdict": ("nu", "", named("people; this run epsilon 0.01; log key 00\x1b[8m")),
    "a round twice": ("nu", "", lambda made: sealed(made, [*rows_of(made), rows_of(made)[-3]])),
    "a run that ends twice": ("poisson", "", with_ends(1e-3, 1e-3)),
    "an end below nothing": ("poisson", "", with_ends(-1e-3)),
    "what an early run had spent": ("poisson", "", with_rows(("charge.carry", None, charge(1e6)))),
    "a charge twice": ("poisson", "", with_rows(*(("charge.reserve", None, charge(s)) for s in (1e6, 0.0)))),
    "a charge given back that nobody took": ("poisson", "", with_rows(("charge.release", None, {"key": "a key"}))),
    "a second making": ("poisson", "", lambda made: sealed(made, [*rows_of(made), rows_of(made)[0]])),
    "an accounting that there is not": ("poisson", "", another_accounting),
    "one round without a nonce": ("nu", "", without_one_nonce),
    "infinite noise": ("calibrated", "", infinite_noise),
    "noise of a later round": ("poisson", "", later_noise),
    "users whose numbers are no doubles": ("nu", "", users_of_no_double),
}


@pytest.mark.parametrize("what", REDERIVED)
def test_rows_that_contradict_each_other_are_refused_even_under_a_key(what: str, certificates: Certificates) -> None:
    kind, _, forge = REDERIVED[what]
    honest = certificates[kind]
    assert not refused(sealed(honest, rows_of(honest)))
    assert refused(forge(honest))


@pytest.mark.parametrize("square", [1e-3, 0.0])
def test_another_run_that_ended_is_believed_where_it_fits(square: float, certificates: Certificates) -> None:
    assert not refused(with_ends(square)(certificates["poisson"]))


def test_what_an_early_run_had_spent_counts_where_it_fits(certificates: Certificates) -> None:
    made = certificates["poisson"]
    assert not refused(with_rows(("charge.carry", None, charge(1e-3)))(made))
    assert refused(with_rows(*(("charge.carry", None, charge(4.0 * i, f"key {i}")) for i in range(9)))(made))


def test_samples_refuse_a_low_point_that_the_one_exact_test_does_not_reach(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker()  # which imports the other file, once
    monkeypatch.setattr(sys.modules["check_sampled"], "one_test", lambda claim, c, epsilons: 0.0 * epsilons)
    kind, _, forge = REDERIVED["a curve that is too low between"]
    honest = certificates[kind]
    assert not refused(sealed(honest, rows_of(honest)))
    assert refused(forge(honest))


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_names_the_noise_and_every_released_model(kind: str, certificates: Certificates) -> None:
    made = certificates[kind]
    (start,) = (row["body"] for row in rows_of(made) if row["action"] == "run.start")
    assert start["noise"] == {**made["noise"], **made["price"].get("discrete", {})}
    assert len(start["noise"]) == (3 if kind == "discrete" else 1)
    models = [row["body"]["model"] for row in rows_of(made) if row["action"] == "round.commit"]
    assert len(set(models)) == len(models) == 6
    assert all(len(bytes.fromhex(model)) == 32 for model in models)


def as_written_by_d6c95ba(made: Certificate) -> Certificate:
    """The same run in rows that name neither noise nor models."""
    unsaid = {"run.start": "noise", "round.commit": "model"}
    bodies = [{k: v for k, v in row["body"].items() if k != unsaid.get(row["action"])} for row in rows_of(made)]
    return sealed(made, [{**row, "body": body} for row, body in zip(rows_of(made), bodies, strict=True)])


def test_rows_that_name_no_noise_are_accepted_for_what_they_say(certificates: Certificates) -> None:
    for kind in ("calibrated", "discrete"):
        before = as_written_by_d6c95ba(certificates[kind])
        said = verdict(before)
        assert "; noise not in the log" in said
        assert claims_less(said, verdict(certificates[kind])).startswith("yes: "), "another key"
        assert SAID.fullmatch(said)[4] == SAID.fullmatch(verdict(certificates[kind]))[4]  # type: ignore[index]
        doubled = with_value(before, ("noise", "multiplier"), before["noise"]["multiplier"] * 2)
        # The plan of the other names its multiplier.
        assert refused(doubled) is (kind == "discrete")
        assert refused(with_value(before, ("noise", "multiplier"), before["noise"]["multiplier"] * 0.99))
        forged = copy.deepcopy(before)
        twice_the_noise(forged)
        assert refused(forged), "the log charged more"


@pytest.fixture(scope="module", params=["nu", "poisson"])
def with_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificate, bytes]:
    """A certificate, and the file of the run's last model."""
    root = tmp_path_factory.mktemp("run")
    made = json.loads(certificate_of(request.param, root))
    (file,) = root.rglob("model.safetensors")
    return made, file.read_bytes()


def relaid(file: bytes, change: Callable[[bytes], bytes] = lambda data: data) -> bytes:
    """The same tensors in another order of the file, with a comment in its header, and the first of them changed."""
    start = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:start])
    header.pop("__metadata__", None)
    parts, place, data = {}, 0, b""
    for name in sorted(header, reverse=True):
        first, end = header[name]["data_offsets"]
        part = file[start + first : start + end]
        part = change(part) if not parts else part
        parts[name] = {**header[name], "data_offsets": [place, place + len(part)]}
        data, place = data + part, place + len(part)
    text = json.dumps({"__metadata__": {"made": "by hand"}, **parts}).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_a_released_model_is_known_by_its_tensors(with_model: tuple[Certificate, bytes]) -> None:
    made, file = with_model
    check = checker().check
    assert "; the model of round 5" in check(made, None, file)
    assert "; the model of round 5" in check(made, "any", relaid(file))
    with pytest.raises(checker().Refused, match="another key"):
        check(made, "00" * 32, file)
    for forged in (relaid(file, lambda part: bytes([part[0] ^ 1]) + part[1:]), relaid(file, lambda part: part[::-1])):
        with pytest.raises(checker().Refused, match="a model that no round"):
            check(made, None, forged)
    start = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:start])
    renamed = json.dumps({f"{name}x": value for name, value in header.items() if name != "__metadata__"}).encode()
    with pytest.raises(checker().Refused, match="a model that no round"):
        check(made, None, len(renamed).to_bytes(8, "little") + renamed + file[start:])
    with pytest.raises(checker().Refused, match="a model that no round"):
        check(as_written_by_d6c95ba(made), None, file)


def test_no_row_is_left_out(certificates: Certificates) -> None:
    """Without its last rows, whose hashes then stand among the others, a log would say less of the run."""
    honest = certificates["nu"]
    kept, rows = honest["rows"][:-4], honest["rows"]
    hashes = []
    for values in rows:
        row = dict(zip((*HASHED, "previous"), values, strict=True))
        content = json.dumps({name: row[name] for name in HASHED}, sort_keys=True, separators=(",", ":"))
        hashes.append(hashlib.sha256(bytes.fromhex(row["previous"]) + content.encode()).digest())
    assert [row[5] for row in rows] == list(range(1, len(rows) + 1)), "the whole log"
    others = [node.hex() for node in merkle.Tree(hashes).others(range(len(kept)))]
    participants = honest["participants"][: sum(row[0] == "round.commit" for row in kept)]
    forged = {**honest, "rows": kept, "others": others, "participants": participants}
    message = ""
    try:
        checker().check(forged)
    except checker().Refused as error:
        message = str(error)
    assert message == "rows are missing, added or moved"


def test_rows_of_another_log_are_refused(certificates: Certificates) -> None:
    """The nodes of the tree are not the forger's to choose."""
    honest = certificates["nu"]
    forged = {**honest, "others": [*honest["others"], "00" * 32]}
    assert refused(forged)
    rows = copy.deepcopy(honest["rows"])
    rows[1][1] = "somebody else"
    digest_fits = sealed(honest, rows_of({**honest, "rows": rows}))
    text, _, signed = digest_fits["checkpoint"].rpartition("\n\n")
    other_root = [*text.split("\n")[:2], base64.b64encode(bytes(32)).decode(), text.split("\n")[3]]
    key = Ed25519PrivateKey.from_private_bytes(FORGER)
    note = "\n".join(other_root) + "\n"
    _, name, raw = signed.rstrip("\n").split(" ")
    signature = base64.b64encode(base64.b64decode(raw)[:4] + key.sign(note.encode())).decode()
    assert not refused(digest_fits)
    assert refused({**digest_fits, "checkpoint": f"{note}\n\u2014 {name} {signature}\n"})


def test_an_old_copy_of_the_ledger_gets_no_certificate(tmp_path: Path) -> None:
    """It was signed with the ledger's key, and said less than was spent."""
    state_dir = home(tmp_path)
    with Session.begin(state_dir, plan(**PLAIN), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(3))
    file = Path(state_dir.ledger.removeprefix("sqlite:///"))
    old = file.read_bytes()

    def made() -> Certificate:
        with Ledger.open(state_dir.ledger) as ledger, ledger.snapshot() as snapshot:
            return dict(json.loads(certificate(snapshot, session.account.id, state_dir)))

    with Ledger.open(state_dir.ledger, head_file=state_dir.head_file, coordinator=True) as ledger:
        ledger.raise_population("people", epsilon=90.0, reason="another study", actor="officer")
    assert verdict(made()).startswith("yes: (90.0, ")
    file.write_bytes(old)
    with pytest.raises(OldCopy):
        made()
    state_dir.head_file.write_bytes(b"\xff")
    with pytest.raises(LedgerError, match="cannot be read"):
        made()


def test_other_rows_need_the_ledgers_key(certificates: Certificates) -> None:
    """A forger can sign rows of a key of their own: the verdict names the key, and refuses another than was asked."""
    honest = certificates["nu"]
    lower = [{**r, "body": {**r["body"], "epsilon": 2.0} if r["action"] == "population.create" else r["body"]}
             for r in rows_of(honest)]  # fmt: skip
    forged = sealed(honest, lower)
    assert verdict(honest, honest["key"]) != "no"
    assert verdict(forged, honest["key"]) == "no"
    assert verdict({**forged, "key": honest["key"]}) == "no"
    text, _, signed = forged["checkpoint"].rpartition("\n\n")
    dash, name, raw = signed.rstrip("\n").split(" ")
    as_the_ledger = merkle.key_hash(name, bytes.fromhex(honest["key"])) + base64.b64decode(raw)[4:]
    note = f"{text}\n\n{dash} {name} {base64.b64encode(as_the_ledger).decode()}\n"
    assert verdict({**forged, "key": honest["key"], "checkpoint": note}) == "no"
    assert verdict(forged).endswith(public_key(FORGER)[:16])


# -- figures of the specification, as certificates built by hand ------------------------------------------------------


def blob(users: list[int]) -> bytes:
    """Fewer than 128 users, each difference below 128."""
    return b"\x01" + zlib.compress(bytes(b - a for a, b in itertools.pairwise([0, *users])))


def by_hand(n: int, sigma: float, mu_squared: float, delta: float, users: list[list[int]], **parts: Any) -> Certificate:
    """A log of one run of n rounds on one population, in which `users` took part round by round."""
    spec = {"scheme": "min-separation", "separation": 1}
    privacy = {"adjacency": "zero_out", "noise_multiplier": sigma, "rounding": "grid"}
    plan_text = json.dumps({"privacy": privacy, "participation": spec, "run": {"rounds": n}})
    loss = json.dumps({"mu_squared": mu_squared, "sampled": []})
    about = {"actor": "hand", "at": 0.0, "event": "", "population": "people"}
    terms = {"adjacency": "zero_out", "delta": delta, "epsilon": 10.0, "leak": 0.0}
    start = {"plan": hashlib.sha256(plan_text.encode()).hexdigest(), "planned": loss, "rounds": n, "format": 3}
    start["price"] = json.dumps({"mu_squared": mu_squared, "leak": 0.0})
    blobs = [blob(each) for each in users]
    commits = [
        {"nonce": f"{t:032x}", "participants": hashlib.sha256(b).hexdigest(), "participant_count": len(users[t])}
        for t, b in enumerate(blobs)
    ]
    rows: list[dict[str, Any]] = [
        {**about, "action": "population.create", "run": None, "round": None, "body": terms},
        {**about, "action": "run.start", "run": "hand", "round": None, "body": start},
        *({**about, "action": "round.commit", "run": "hand", "round": t, "body": b} for t, b in enumerate(commits)),
        {**about, "action": "run.finish", "run": "hand", "round": None, "body": {"spent": loss}},
    ]
    made = {
        **{"accounting": {}, "assumptions": {}, "format": "fieldfare-certificate/2", "run": "hand", "plan": plan_text},
        **{"noise": {"multiplier": sigma}, "price": {"leak": 0.0, "mu_squared": mu_squared}},
        **{"participants": [base64.b64encode(b).decode() for b in blobs], "theorems": ["filter", "gram"]},
    }
    return sealed({**made, **parts}, rows)


def nu_of_the_specification(pattern: tuple[int, ...] = (0, 2, 4, 6)) -> Certificate:
    t = np.arange(1, 8)
    beta = np.concatenate([[1.0], np.cumprod(0.9 * (t - 1.5) / t)])
    users = [[i for i, rounds in enumerate((pattern, (0, 3))) if t in rounds] for t in range(8)]
    interval = {"lo": 4.56078894, "hi": 4.5607889438412410}
    return by_hand(8, 3.0, 1.0734692082466977, 1e-5, users, noising={"toeplitz": array(beta)}, epsilon=interval)


def test_the_nu_run_of_the_specification() -> None:
    made = nu_of_the_specification()
    assert not refused(made)
    for forge in (
        change("price.mu_squared", times(1 - 1e-8)),
        change("epsilon.hi", lambda e: e - 1e-6),
        change("noise.multiplier", times(0.9999)),
        coefficient,
    ):
        forged = copy.deepcopy(made)
        forge(forged)
        assert refused(forged)
    assert refused(nu_of_the_specification((0, 2, 3, 4, 6))), "a pattern that costs more than was charged"
    assert not refused(nu_of_the_specification((0, 2, 6))), "a smaller pattern only makes the claim looser"


def test_a_value_of_another_type_is_refused_in_one_line(tmp_path: Path) -> None:
    """Some were tracebacks."""
    file = tmp_path / "certificate.json"
    for path, value in ((("checkpoint",), 5), (("run",), None), (("price", "mu_squared"), 10**400)):
        file.write_text(json.dumps(with_value(nu_of_the_specification(), path, value)))
        checked = subprocess.run([sys.executable, str(CHECKER), str(file)], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stdout) == (1, "")
        assert checked.stderr.startswith("no: ")
        assert checked.stderr.count("\n") == 1


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
    """Its worst pattern, where who takes part is secret."""
    square, exact = WhitenedTree(2000).worst(314, 6)
    assert exact
    assert square == pytest.approx(70.30117314826, rel=1e-10)
    check = checker()
    r, _ = check.whitened(check.online_tree(2000))
    g = np.abs(r.T @ r)
    spec = {"scheme": "b-min-sep", "separation": 314, "groups": None}
    witness = [20, 340, 660, 980, 1364, 1706]
    claim = {"separation": 314, "count": 7, "square": square, "witness": witness}
    made = {"noising": {"tree": "online"}, "plan": json.dumps({"participation": spec})}
    from_six = check.sys.modules["check_sampled"].online_worst(2000, 314, 6)
    assert from_six == pytest.approx(square, rel=1e-9)
    for wrong in ({"square": 69.9}, {"witness": [20, 320, 660, 980, 1364, 1706]}, {"count": 5}, {"separation": 315}):
        with pytest.raises(check.Refused):
            check.worst({**made, "accounting": {"worst": {**claim, **wrong}}}, g)

"""The strategies that runs apply, on disk, by content.

    ROOT/RUN/SHA-256.strategy    canonical JSON: the mechanism, what it is built for, what optimisers decided

A charge belongs to one strategy matrix, and an optimiser finds another one on another machine. So a run's strategy is
stored before the ledger can name it; the ledger, its journal and every checkpoint hold its SHA-256. A resume, a
verification and a residual test read that file. Nothing is optimised a second time.

Besides, results that take minutes to optimise are kept for later runs of the same plan, one file for each, named by the
hash of their key (`StrategyFiles`).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fieldfare.arrays import Floats
from fieldfare.cost import Cost
from fieldfare.costing import CERTIFIED, CHARGE_FORMAT, cost_of
from fieldfare.errors import CheckpointError
from fieldfare.mechanisms import Mechanism, describe
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism
from fieldfare.mechanisms.tree import OnlineTree
from fieldfare.plan import RESOLUTION, Plan
from fieldfare_server.files.atomic import replace_file

KEPT = "strategies"
"""Where below a state directory slow optimisations are kept by key."""
_SUFFIX = ".strategy"
_FORMAT = "fieldfare-strategy/1"
_OTHER_VERSION = "the version that began the run"
_LARGEST_MATRIX = 2048
"""Rounds up to which a whole noising matrix is stored."""
_SAME = 1e-9
"""Relative difference below which two machines' coefficients are the same formula's."""


class StrategyError(CheckpointError):
    """The strategy of a run is missing, altered, or not what this version computes. The ledger is not in doubt."""


class StrategyFiles(MutableMapping[str, bytes]):
    """Optimised matrices by key, one file for each. The caller checks what it reads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _path(self, key: str) -> Path:
        return self._directory / f"{hashlib.sha256(key.encode()).hexdigest()}.strategy"

    def __getitem__(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except OSError:
            raise KeyError(key) from None

    def __setitem__(self, key: str, value: bytes) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        replace_file(self._path(key), value, mode=0o644)

    def __delitem__(self, key: str) -> None:
        self._path(key).unlink()

    def __iter__(self) -> Iterator[str]:
        raise TypeError("keys are kept as hashes only")

    def __len__(self) -> int:
        return sum(1 for _ in self._directory.glob("*.strategy"))


class _Recording(dict[str, bytes]):
    """Remembers what an optimiser decided. behind: where results are looked up and kept for later runs."""

    def __init__(self, behind: StrategyFiles | None) -> None:
        super().__init__()
        self._behind = behind

    def get(self, key: str, default: Any = None) -> Any:
        shared = key != CERTIFIED  # a certificate is of one run's seed
        if shared and key not in self and self._behind is not None and (stored := self._behind.get(key)) is not None:
            super().__setitem__(key, stored)
        return super().get(key, default)

    def __setitem__(self, key: str, value: bytes) -> None:
        super().__setitem__(key, value)
        if self._behind is not None and key != CERTIFIED:
            self._behind[key] = value


class _Sealed(dict[str, bytes]):
    """What an optimiser decided once; a name that is not there is refused, so nothing is optimised again."""

    def __init__(self, entries: MutableMapping[str, bytes], missing: StrategyError) -> None:
        super().__init__(entries)
        self._missing = missing

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            raise self._missing
        return self[key]


def without_search() -> MutableMapping[str, bytes]:
    """A cache for `mechanisms.build` that raises `StrategyError` where an optimiser would have to search."""
    return _Sealed({}, StrategyError("the strategy of a run", "an optimiser decided it, and its result is not here."))


def settle(plan: Plan, root: Path, price: Callable[[MutableMapping[str, bytes]], Cost]) -> tuple[Cost, bytes]:
    """(The plan's cost, the strategy to store); a strategy that takes minutes is found in `root` or kept there.

    price: computes the plan's cost, given the results of optimisers by key.

    Raises `BadInput` where the plan cannot be met.
    """
    # Only slow kinds name their results by all that they were made for.
    kept = describe(plan.mechanism.kind).slow
    entries = _Recording(StrategyFiles(root / KEPT) if kept else None)
    cost = price(entries)
    content = {
        **_terms(plan),
        "entries": {name: base64.b64encode(value).decode() for name, value in entries.items()},
        # Where an optimiser decided, its result says it all.
        "noising": None if set(entries) - {CERTIFIED} else describe_noising(cost.mechanism),
    }
    stored = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return replace(cost, strategy=hashlib.sha256(stored).hexdigest()), stored


@dataclass(frozen=True)
class StoredStrategy:
    """Where the strategy of a run lies, and the digest by which the ledger names it."""

    root: Path
    """The state directory."""
    run: str
    digest: str | None
    """None for runs of the ledger's first version, which named no strategy."""
    format: int = CHARGE_FORMAT
    """The run's format: by which rule it is charged."""

    @property
    def path(self) -> Path:
        """The file of a strategy that has a digest."""
        return self.root / self.run / f"{self.digest}{_SUFFIX}"

    @property
    def readable(self) -> bool:
        """Whether a file is there to be read, or none is needed."""
        return self.digest is None or self.path.is_file()

    def write(self, content: bytes) -> None:
        """Store what `settle` returned, durably. Raises OSError."""
        replace_file(self.path, content, mode=0o644)

    def cost(self, table: Mapping[str, Any]) -> Cost:
        """The cost of the run's stored plan with the strategy that it applies. Nothing is optimised.

        Without a digest, kinds that take minutes are read from the files that they kept by key; the others are built
        from the plan, as their coordinators did.

        Raises:
            StrategyError: the file is missing or altered, or this version computes another strategy from it.
        """
        plan = Plan.stored(table)
        terms: dict[str, Any] = {
            "charge_format": min(self.format, CHARGE_FORMAT),
            "resolution": float(table.get(RESOLUTION, 0.0)),
        }
        if self.digest is None:
            return self._cost_by_key(plan, terms)
        what, stored = f"strategy file {self.path}", self._read()
        if {name: stored.get(name) for name in _terms(plan)} != _terms(plan):
            raise StrategyError(what, "it was made for another plan.")
        entries = _entries(stored)
        missing = StrategyError(what, "this version needs the result of an optimiser that it lacks.", _OTHER_VERSION)
        cost = cost_of(plan, _Sealed(entries, missing), **terms)
        if stored["noising"] is not None and not _agree(stored["noising"], describe_noising(cost.mechanism)):
            raise StrategyError(what, "this version computes another strategy for this plan.", _OTHER_VERSION)
        return replace(cost, strategy=self.digest)

    def entries(self) -> dict[str, bytes]:
        """What optimisers decided, by key; {} for runs without a digest. Raises `StrategyError` as `cost`."""
        return {} if self.digest is None else _entries(self._read())

    def _read(self) -> dict[str, Any]:
        what = f"strategy file {self.path}"
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise _unavailable(what, f"it cannot be read ({error.strerror})", self) from None
        if hashlib.sha256(content).hexdigest() != self.digest:
            raise _unavailable(what, "its bytes were changed", self)
        stored: dict[str, Any] = json.loads(content)
        return stored

    def _cost_by_key(self, plan: Plan, terms: dict[str, Any]) -> Cost:
        if not describe(plan.mechanism.kind).slow:
            return cost_of(plan, **terms)
        what = f"optimised strategy of run {self.run}"
        why = f"it is not in {self.root / KEPT}, and another search may end at another one"
        return cost_of(plan, _KeptByKey(StrategyFiles(self.root / KEPT), _unavailable(what, why, self)), **terms)


class _KeptByKey(_Sealed):
    def __init__(self, files: StrategyFiles, missing: StrategyError) -> None:
        super().__init__({}, missing)
        self._files = files

    def get(self, key: str, default: Any = None) -> Any:
        stored = self._files.get(key)
        if stored is None:
            raise self._missing
        return stored


def describe_noising(mechanism: Mechanism, rounds: int | None = None) -> dict[str, Any] | None:
    """B's first `rounds` rows (None: all) as a certificate holds them; None for a matrix too large to be written.

    `{"tree": "online"}`, `{"toeplitz": first column}` or `{"dense": rows}`, arrays as in `encode_array`.
    """
    n = mechanism.rounds if rounds is None else rounds
    if isinstance(mechanism, OnlineTree):
        return {"tree": "online"}
    if isinstance(mechanism, ToeplitzMechanism):
        return {"toeplitz": encode_array(mechanism.noising_coefs[:n])}
    return {"dense": encode_array(mechanism.noising_matrix(n))} if 0 < n <= _LARGEST_MATRIX else None


def encode_array(values: Floats) -> dict[str, Any]:
    """Little-endian float64 in base64, with its SHA-256 and shape."""
    raw = np.ascontiguousarray(values, dtype="<f8").tobytes()
    encoded = base64.b64encode(raw).decode()
    return {"base64": encoded, "sha256": hashlib.sha256(raw).hexdigest(), "shape": list(values.shape)}


def _decode(array: dict[str, Any]) -> Floats:
    return np.frombuffer(base64.b64decode(array["base64"]), dtype="<f8").reshape(array["shape"])


def _agree(stored: dict[str, Any], now: dict[str, Any] | None) -> bool:
    """Whether two descriptions are of one matrix, up to the last bits that another processor may round otherwise."""
    if now is None or stored.keys() != now.keys():
        return False
    ((form, before),) = stored.items()
    if form == "tree":
        return bool(before == now[form])
    a, b = _decode(before), _decode(now[form])
    return a.shape == b.shape and bool(np.abs(a - b).max(initial=0.0) <= _SAME * np.abs(a).max(initial=1.0))


def _entries(stored: dict[str, Any]) -> dict[str, bytes]:
    return {name: base64.b64decode(value) for name, value in stored["entries"].items()}


def _terms(plan: Plan) -> dict[str, Any]:
    """What a strategy is built from."""
    return {
        "format": _FORMAT,
        "mechanism": plan.mechanism.model_dump(mode="json"),
        "participation": plan.participation.model_dump(mode="json"),
        "rounds": plan.run.rounds,
    }


def _unavailable(what: str, why: str, wanted: StoredStrategy) -> StrategyError:
    named = "" if wanted.digest is None else f"; run {wanted.run} applies the strategy with SHA-256 {wanted.digest}"
    return StrategyError(
        what,
        f"{why}{named}. The ledger is not in doubt, and nothing is lost or spent.",
        "a copy of it from the state directory in which the run began",
    )

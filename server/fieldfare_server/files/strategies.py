"""The strategies that runs apply, on disk, by content.

    ROOT/RUN/SHA-256.strategy    canonical JSON: the mechanism, what it is built for, what optimisers decided, the
                                 numbers that its noise is multiplied by, the price

A charge belongs to one strategy matrix and one noise multiplier, and a search ends at others on another
machine. So a run's strategy is stored with its price before the ledger can name it; the ledger, its journal
and every checkpoint hold its SHA-256. A resume, a verification and a residual test read that file. Nothing is
searched for a second time, and the noise goes on with the numbers that it began with.

Besides, results that take minutes to optimise are kept for later runs of the same plan, one file for each,
named by the hash of their key (`StrategyFiles`).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fieldfare.accounting import PrivacyLoss
from fieldfare.arrays import Floats
from fieldfare.atomic import replace_file
from fieldfare.cost import Certificate, Cost, StoredPrice
from fieldfare.costing import Sealed, cost_as_priced
from fieldfare.errors import BadInput, CheckpointError
from fieldfare.mechanisms import Mechanism, describe
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism
from fieldfare.mechanisms.tree import OnlineTree
from fieldfare.names import RESOLUTION
from fieldfare.plan import Plan

# Where below a state directory slow optimisations are kept by key.
KEPT = "strategies"
_SUFFIX = ".strategy"
_FORMAT = "fieldfare-strategy/1"
_OTHER_VERSION = "the version that began the run"
# Among the entries of runs from before their price was stored: their certificate.
_CERTIFIED = "certified charge"
# Rounds up to which a whole noising matrix is stored.
_LARGEST_MATRIX = 2048
# Relative difference below which two machines' coefficients are the same formula's.
_SAME = 1e-9


class StrategyError(CheckpointError):
    """The strategy of a run is missing, altered, or not what this version computes. The ledger is not in doubt."""


class StrategyFiles:
    """Optimised matrices by key, one file for each. The caller checks what it reads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _path(self, key: str) -> Path:
        return self._directory / f"{hashlib.sha256(key.encode()).hexdigest()}.strategy"

    def get(self, key: str) -> bytes | None:
        """Return what was kept under `key`; None where nothing was."""
        try:
            return self._path(key).read_bytes()
        except OSError:
            return None

    def __setitem__(self, key: str, value: bytes) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        replace_file(self._path(key), value, mode=0o644)


class Decisions(dict[str, bytes]):
    """What optimisers decide for one run: the cache of its price, which is stored with it.

    Results that take minutes are looked up in `root`, and kept there for later runs.
    """

    def __init__(self, plan: Plan, root: Path) -> None:
        super().__init__()
        # Only slow kinds name their results by all that they were made for.
        self._behind = StrategyFiles(root / KEPT) if describe(plan.mechanism.kind).slow else None

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self and self._behind is not None and (stored := self._behind.get(key)) is not None:
            super().__setitem__(key, stored)
        return super().get(key, default)

    def __setitem__(self, key: str, value: bytes) -> None:
        super().__setitem__(key, value)
        if self._behind is not None:
            self._behind[key] = value


def without_search() -> MutableMapping[str, bytes]:
    """Return a cache for `mechanisms.build` that raises `StrategyError` where an optimiser would have to search."""
    return Sealed({}, StrategyError("the strategy of a run", "an optimiser decided it, and its result is not here."))


def settle(cost: Cost, decided: Mapping[str, bytes]) -> tuple[Cost, bytes]:
    """Return (`cost` with its strategy's digest, the strategy to store). decided: what optimisers decided for it."""
    applied = {name: encode_array(values) for name, values in cost.mechanism.applied().items()}
    content = {
        **_terms(cost.plan),
        "applied": applied,
        "entries": {name: base64.b64encode(value).decode() for name, value in decided.items()},
        # Of the other kinds: what pins the formula, unless an optimiser's result says it all.
        "noising": None if decided or applied else describe_noising(cost.mechanism),
        "price": cost.stored_price.to_json(),
    }
    stored = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return replace(cost, strategy=hashlib.sha256(stored).hexdigest()), stored


@dataclass(frozen=True)
class StoredStrategy:
    """Where the strategy of a run lies, and the digest by which the ledger names it."""

    root: Path  # the state directory
    run: str
    digest: str | None  # None where none was stored
    planned: PrivacyLoss  # what the ledger says that the run reserved: the price of a run whose file has none

    @property
    def path(self) -> Path:
        """The file of a strategy that has a digest."""
        return self.root / self.run / f"{self.digest}{_SUFFIX}"

    @property
    def readable(self) -> bool:
        """Whether a file is there to be read."""
        return self.path.is_file()

    @property
    def decided(self) -> dict[str, str]:
        """What optimisers decided, base64 by name; without certificates, which the price has. As `applied`."""
        entries: dict[str, str] = self._read()["entries"]
        return {name: value for name, value in entries.items() if name != _CERTIFIED}

    def write(self, content: bytes) -> None:
        """Store what `settle` returned, durably. Raises OSError."""
        replace_file(self.path, content, mode=0o644)

    def cost(self, table: Mapping[str, object]) -> Cost:
        """Return the cost of the run's stored plan with the strategy that it applies. As `applied`."""
        return self.applied(table)[0]

    def applied(self, table: Mapping[str, Any]) -> tuple[Cost, dict[str, bytes]]:
        """Return (The cost of the run's stored plan with its strategy, at its price; what optimisers decided).

        Nothing is searched for.

        Raises:
            StrategyError: the file is missing or altered, or this version computes another strategy or price
                from it.
            BadInput: the file has no price, and the ledger's is not that of the plan.
        """
        plan = Plan.stored(table)
        resolution = float(table.get(RESOLUTION, 0.0))
        what, stored = f"strategy file {self.path}", self._read()
        if {name: stored.get(name) for name in _terms(plan)} != _terms(plan):
            raise StrategyError(what, "it was made for another plan.")
        decided, price = _entries(stored), stored.get("price")
        certificate = decided.pop(_CERTIFIED, None)
        missing = StrategyError(what, "this version needs the result of an optimiser that it lacks.", _OTHER_VERSION)
        try:
            made = None if certificate is None else Certificate.from_json(json.loads(certificate))
            read = StoredPrice(self.planned, None, made) if price is None else StoredPrice.from_json(price)
            cost = cost_as_priced(plan, Sealed(decided, missing), read, resolution=resolution)
        except BadInput as error:
            if price is None:
                raise
            raise StrategyError(what, f"this version does not compute its price: {error}", _OTHER_VERSION) from None
        applied, now = stored.get("applied", {}), cost.mechanism.applied()
        whole = stored["noising"] is None or _agree(stored["noising"], describe_noising(cost.mechanism))
        if not whole or (applied and not _agree(applied, {name: encode_array(now[name]) for name in now})):
            raise StrategyError(what, "this version computes another strategy for this plan.", _OTHER_VERSION)
        # The noise goes on with the very numbers that it began with, and so does its state in checkpoints.
        applying = cost.mechanism.applying({name: _decode(values) for name, values in applied.items()})
        return replace(cost, strategy=self.digest, mechanism=applying), decided

    def _read(self) -> dict[str, Any]:
        what = f"strategy file {self.path}"
        if self.digest is None:
            raise _unavailable(f"strategy of run {self.run}", "none was stored with it", self)
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise _unavailable(what, f"it cannot be read ({error.strerror})", self) from None
        if hashlib.sha256(content).hexdigest() != self.digest:
            raise _unavailable(what, "its bytes were changed", self)
        stored: dict[str, object] = json.loads(content)
        return stored


def describe_noising(mechanism: Mechanism, rounds: int | None = None) -> dict[str, object] | None:
    """Return B's first `rounds` rows (None: all) as a certificate holds them; None of too large a matrix.

    `{"tree": "online"}`, `{"toeplitz": first column}` or `{"dense": rows}`, arrays as in `encode_array`.
    """
    n = mechanism.rounds if rounds is None else rounds
    if isinstance(mechanism, OnlineTree):
        return {"tree": "online"}
    if isinstance(mechanism, ToeplitzMechanism):
        return {"toeplitz": encode_array(mechanism.noising_coefs[:n])}
    return {"dense": encode_array(mechanism.noising_matrix(n))} if 0 < n <= _LARGEST_MATRIX else None


def encode_array(values: Floats) -> dict[str, object]:
    """Return Little-endian float64 in base64, with its SHA-256 and shape."""
    raw = np.ascontiguousarray(values, dtype="<f8").tobytes()
    encoded = base64.b64encode(raw).decode()
    return {"base64": encoded, "sha256": hashlib.sha256(raw).hexdigest(), "shape": list(values.shape)}


def _decode(array: dict[str, Any]) -> Floats:
    return np.frombuffer(base64.b64decode(array["base64"]), dtype="<f8").reshape(array["shape"])


def _agree(stored: dict[str, Any], now: dict[str, Any] | None) -> bool:
    """Return whether two descriptions are of one noise, but for last bits that another processor rounds."""
    if now is None or stored.keys() != now.keys():
        return False
    return all(before == now[form] or _close(_decode(before), _decode(now[form])) for form, before in stored.items())


def _close(a: Floats, b: Floats) -> bool:
    return a.shape == b.shape and bool(np.abs(a - b).max(initial=0.0) <= _SAME * np.abs(a).max(initial=1.0))


def _entries(stored: dict[str, Any]) -> dict[str, bytes]:
    return {name: base64.b64decode(value) for name, value in stored["entries"].items()}


def _terms(plan: Plan) -> dict[str, object]:
    """Return what a strategy is built from."""
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

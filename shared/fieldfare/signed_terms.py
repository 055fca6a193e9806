"""What a run costs its users, signed by the ledger's coordinator, for nodes that keep a budget of their own.

A node that keeps one (`fieldfare_client.budget`) recomputes a user's charge from these terms, by the
arithmetic of the ledger, and writes it down before it trains. The signature is that of the key which signs
the journal's head, so a coordinator that told nodes other terms than its ledger has left evidence of it.

    fieldfare-terms-v1 JSON          Ed25519 (RFC 8032) of this ASCII text; JSON is canonical: sorted keys, no spaces
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from fieldfare.errors import Differs, NotGiven, NotInstalled, Refused
from fieldfare.signatures import is_signed, public_key, sign

if TYPE_CHECKING:  # a node that keeps no budget reads no terms, and has neither accounting nor SciPy
    from fieldfare.accounting.event import Price
    from fieldfare.cost import Cost

FORMAT = "fieldfare-terms-v1"

# Why a node refuses by its own budget: in a fixed word, which it may send, and in words for people.
REASONS = {
    "no-terms": "an instruction names no population and no price",
    "not-signed": "terms are not of the format, or not signed by their key",
    "another-ledger": "the terms are another ledger's, or signed with another key, than the node's users agreed to",
    "not-agreed": "the population is not one that the node's users agreed to",
    "another-population": "another population than before has this name",
    "older-log": "the log ends before a row that the node was shown",
    "another-plan": "the run has other terms than at its first instruction",
    "not-private": "the run's noise can be computed by anyone",
    "not-priced": "the price is not that of the plan",
    "not-planned": "an instruction asks for something else than the plan that is charged",
    "exceeds": "users have spent what they agreed to",
    "not-listed": "users were asked whom the node did not name for this run",
    "asked-again": "users were asked again for what they had answered",
    "too-often": "users were asked more often than the plan allows",
    "too-soon": "users were asked sooner after their last round than the plan allows",
    "out-of-turn": "users were asked for a round that the plan does not have for them",
    "older-charges": "the node's own file of charges is an older copy, or another one",
    "no-task": "the node names no task, and the run's would say who its users are",
    "no-memory": "the node's own charges or settings cannot be read or written, or SciPy is missing",
}


# The members of terms that stay the same for the whole run, with their types.
_LASTING = {"ledger": str, "population": str, "identity": str, "run": str, "individual": bool}
_LASTING |= {"plan": dict, "price": dict, "decided": dict}


class NodeBudgetRefused(Refused):
    """A node's own budget does not allow what the server asks of its users. Nobody was trained."""

    def __init__(self, what: str, why: str = "", nearest: str = "", *, reason: str) -> None:
        """reason: a word of `REASONS`, which says why, too; of an older log after it the head that contradicts."""
        near = nearest or f"what docs/node-budget.md says of {reason.split()[0]}"
        super().__init__(what, why or f"{REASONS[reason]}.", near)
        self.told = reason  # what a node may tell the server of it: nothing else


@dataclass(frozen=True)
class RunTerms:
    """What one run asks of the users of one population, and where its ledger stands."""

    ledger: str  # 32 hex digits, as in a signed head
    row: int  # the journal's last row when this was signed
    population: str
    # Hash of the journal row that made the population: no other population has it, whatever its name.
    identity: str
    spent: Price  # what the population had spent by then; with odometers, its user who had spent most
    run: str
    plan: Mapping[str, object]  # as the ledger stores it with the run (`Plan.run_json`)
    price: Mapping[str, object]  # as `StoredPrice.to_json`
    decided: Mapping[str, str]  # what optimisers decided for the mechanism, base64
    # Whether each user is charged what that user takes part in; else all users the whole run.
    individual: bool

    def to_json(self) -> str:
        """Return the canonical JSON; floats in full precision."""
        return self._text(row=self.row, spent=self.spent.to_json())

    def _text(self, **more: object) -> str:
        table = {name: getattr(self, name) for name in _LASTING} | more
        return json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def lasting(self) -> str:
        """What stays the same for the whole run, as text: all but the row and what was spent."""
        return self._text()

    def cost(self) -> Cost:
        """Return the run's cost, from its plan at its stored price. Raises `NodeBudgetRefused` where they disagree."""
        return _cost(self.lasting)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `to_json`. Raises ValueError, TypeError, KeyError or `BadInput` for anything else."""
        from fieldfare.accounting.event import Price

        table = json.loads(text)
        terms = cls(**{**table, "spent": Price.from_json(table["spent"])})
        typed = all(type(table[name]) is kind for name, kind in {**_LASTING, "row": int}.items())
        # Canonical: no key twice, no NaN. SQLite has no longer row.
        if not typed or not 0 < terms.row < 1 << 62 or terms.to_json() != text:
            raise ValueError("ill-typed terms")
        return terms


@lru_cache(maxsize=8)
def _cost(lasting: str) -> Cost:
    from fieldfare.cost import StoredPrice
    from fieldfare.costing import Sealed, cost_as_priced
    from fieldfare.names import RESOLUTION
    from fieldfare.plan import Plan

    table = json.loads(lasting)
    run = f"run {table['run'][:40]!r}"
    try:
        plan = Plan.stored(table["plan"])
        decided = {name: base64.b64decode(value, validate=True) for name, value in table["decided"].items()}
        missing = NotGiven("the mechanism", "needs an optimiser's result that the terms lack.")
        price, resolution = StoredPrice.from_json(table["price"]), float(table["plan"].get(RESOLUTION, 0.0))
        cost = cost_as_priced(plan, Sealed(decided, missing), price, resolution=resolution)
        if cost.certificate is not None:
            # Its samples are the coordinator's: it is not believed below what the noise costs without any.
            opinion, curve = cost.second_opinion, cost.certificate.curve
            opinion.require(curve)
            if curve.mu**2 < opinion.law.largest * (1 - 1e-9):
                raise Differs(f"mu = {curve.mu:g} of a certificate", "the noise has more without its secret draws.")
        return cost
    except (Refused, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        reason = "no-memory" if isinstance(error, NotInstalled) else "not-priced"
        raise NodeBudgetRefused(run, f"its price is not found to be its plan's ({error}).", reason=reason) from None


@dataclass(frozen=True)
class SignedTerms:
    """Terms as text, with the key that signed them; not checked until `open`."""

    text: str
    key: str  # Ed25519 public key, 64 hex digits
    signature: str  # 128 hex digits
    keys: tuple[str, ...] = ()  # the lines by which the head's key changed (`fieldfare.head_keys`)

    @classmethod
    def of(cls, terms: RunTerms, private_key: bytes, keys: Iterable[str] = ()) -> Self:
        """Sign terms. private_key: the 32 bytes of an Ed25519 private key."""
        text = terms.to_json()
        signature = sign(private_key, f"{FORMAT} {text}".encode("ascii")).hex()
        return cls(text, public_key(private_key), signature, tuple(keys))

    @lru_cache(maxsize=64)  # noqa: B019  (of all terms together)
    def open(self) -> RunTerms:
        """Return the terms, whose signature is that of `key`. Raises `NodeBudgetRefused`."""
        try:
            if not is_signed(self.key, bytes.fromhex(self.signature), f"{FORMAT} {self.text}".encode("ascii")):
                raise ValueError("another signature")
            return RunTerms.parse(self.text)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise NodeBudgetRefused("the terms of a run", reason="not-signed") from None

"""The node's own file of what its users agreed to, TOML:

charges = "charges.sqlite3"      # what was charged; beside this file
mark = "/elsewhere/mark"         # tells an older copy of it; by default beside it, as charges.sqlite3.mark
epsilon = 3.0                    # the most that any user loses, all populations together
delta = 1e-5

[populations.patients]
head = "fieldfare-head-v1 ..."   # the ledger: a line of `fieldfare head`
epsilon = 3.0                    # the most that any user loses in this population
delta = 1e-5
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from pydantic import Field

from fieldfare.accounting.filter import Rectangle, Terms, default_leak
from fieldfare.errors import NotGiven, Unreadable
from fieldfare.refusals import validated
from fieldfare.registry import Table
from fieldfare.signed_head import SignedHead


class _Most(Table):
    """The most that a user loses."""

    epsilon: float = Field(gt=0)
    delta: float
    leak: float | None = None

    @cached_property
    def terms(self) -> Terms:
        """The same, as what prices are compared with. Raises `BadInput` for what is no budget."""
        leak = default_leak("zero_out", self.delta) if self.leak is None else self.leak
        Rectangle.of(self.epsilon, self.delta, leak)
        return Terms(self.epsilon, self.delta, leak)


class Agreed(_Most):
    """What the users of a node agreed to for one population."""

    # A signed head of its ledger: terms must be signed with its key, or with one that followed it, and a log that ends
    # before it is refused.
    head: str
    identity: str = ""  # hash of the journal row that made it; "": that of the first instruction, which is kept
    # Whether none of the node's users took part before the node kept a budget. Else what was spent by then is
    # charged to each of them.
    new_users: bool = False


class _Top(Table):
    populations: dict[str, dict[str, object]] = Field(min_length=1)
    charges: str = "charges.sqlite3"
    mark: str = ""


@dataclass(frozen=True)
class NodeBudget:
    """A node's budget, as its operator wrote it."""

    charges: Path
    mark: Path  # the second file, whose mark is that of the newest charges
    together: Terms  # of all populations together
    populations: Mapping[str, Agreed]

    @staticmethod
    def read(path: Path) -> NodeBudget:
        """Read the file. Raises `BadInput`: a node whose budget cannot be read trains nobody."""
        try:
            return _parsed(path.read_text(encoding="utf-8"), path)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise Unreadable(f"the node's budget {str(path)!r}", f"cannot be read ({error}).") from None


@lru_cache(maxsize=8)
def _parsed(text: str, path: Path) -> NodeBudget:
    table = tomllib.loads(text)
    most = {key: table.pop(key) for key in _Most.model_fields if key in table}
    top, agreed = validated(_Top, table, str(path)), {}
    for name, each in top.populations.items():
        read = agreed[name] = validated(Agreed, each, f"{path}: populations.{name}")
        _ = SignedHead.parse(read.head), read.terms  # refuses what is none
    if not most and len(agreed) > 1:
        why = "says of no population how much all of them may cost a user."
        raise NotGiven(f"the node's budget {str(path)!r}", why, "epsilon and delta on top")
    together = validated(_Most, most, str(path)).terms if most else next(iter(agreed.values())).terms
    charges = path.parent / top.charges
    return NodeBudget(charges, path.parent / (top.mark or f"{charges.absolute()}.mark"), together, agreed)

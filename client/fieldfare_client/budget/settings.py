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
from functools import lru_cache
from pathlib import Path
from typing import Self

from fieldfare.accounting.filter import Rectangle, Terms, default_leak
from fieldfare.errors import NotGiven, OutOfRange, Unknown, Unreadable, WrongForm
from fieldfare.signed_head import SignedHead

_TOP = {"charges", "mark", "epsilon", "delta", "leak", "populations"}
_POPULATION = {"head", "epsilon", "delta", "leak", "identity", "new_users"}


@dataclass(frozen=True)
class Agreed:
    """What the users of a node agreed to for one population."""

    name: str
    # A head of its ledger. Terms are signed with this key, or one that it names; no log that ends earlier is it.
    head: SignedHead
    terms: Terms
    identity: str  # hash of the journal row that made it; "": that of the first instruction, which is kept
    # Whether none of the node's users took part before the node kept a budget. Else what was spent by then is
    # charged to each of them.
    new_users: bool


@dataclass(frozen=True)
class NodeBudget:
    """A node's budget, as its operator wrote it."""

    charges: Path
    mark: Path  # the second file, whose mark is that of the newest charges
    together: Terms  # of all populations together
    populations: Mapping[str, Agreed]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file. Raises `BadInput`: a node whose budget cannot be read trains nobody."""
        what = f"the node's budget {str(path)!r}"
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Unreadable(what, f"cannot be read ({error}).") from None
        return cls(*_parsed(text, path))


@lru_cache(maxsize=8)
def _parsed(text: str, path: Path) -> tuple[Path, Path, Terms, dict[str, Agreed]]:
    what = f"the node's budget {str(path)!r}"
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unreadable(what, f"is not TOML: {error}.") from None
    _require_keys(what, table, _TOP)
    named = table.get("populations")
    if not isinstance(named, dict) or not named:
        raise NotGiven(what, "names no population.", "[populations.NAME] with head, epsilon and delta")
    populations = {name: _agreed(f"{what}, population {name!r}", name, each) for name, each in named.items()}
    if "epsilon" in table or "delta" in table:
        together = _terms(what, table)
    elif len(populations) == 1:
        together = next(iter(populations.values())).terms
    else:
        raise NotGiven(what, "says of no population how much all of them may cost a user.", "epsilon and delta on top")
    charges = path.parent / str(table.get("charges", "charges.sqlite3"))
    return charges, path.parent / str(table.get("mark", f"{charges.absolute()}.mark")), together, populations


def _agreed(what: str, name: str, table: object) -> Agreed:
    if not isinstance(table, dict):
        raise WrongForm(what, "is not a table.", f"[populations.{name}]")
    _require_keys(what, table, _POPULATION)
    head, identity, new = table.get("head"), table.get("identity", ""), table.get("new_users", False)
    if not isinstance(head, str):
        near = 'head = "fieldfare-head-v1 ...", by `fieldfare head`'
        raise NotGiven(what, "does not say which ledger it is of.", near)
    if not isinstance(identity, str) or not isinstance(new, bool):
        raise WrongForm(what, "identity is text, and new_users is true or false.")
    return Agreed(name, SignedHead.parse(head), _terms(what, table), identity, new)


def _terms(what: str, table: Mapping[str, object]) -> Terms:
    epsilon, delta = _number(what, table, "epsilon"), _number(what, table, "delta")
    leak = _number(what, table, "leak") if "leak" in table else default_leak("zero_out", delta)
    if not 0 < epsilon < float("inf"):
        raise OutOfRange(f"{what}, epsilon = {epsilon}", "must be a finite number above 0.", "1.0")
    Rectangle.of(epsilon, delta, leak)  # refuses what is no budget
    return Terms(epsilon, delta, leak)


def _number(what: str, table: Mapping[str, object], key: str) -> float:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongForm(f"{what}, {key} = {value!r}", "must be a number.", {"epsilon": "1.0"}.get(key, "1e-5"))
    return float(value)


def _require_keys(what: str, table: Mapping[str, object], known: set[str]) -> None:
    if unknown := sorted(table.keys() - known):
        raise Unknown(what, f"has {unknown[0]!r}, which is not one of its keys.", ", ".join(sorted(known)))

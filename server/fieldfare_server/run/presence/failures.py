"""Why nodes do not answer as they should, and when that ends a run at once.

An error reply has one of Flower's codes. Some pass (a node was offline); the others are faults of the app,
which every further round would meet again. If, before anything was committed, more than half of the nodes
that are online answer and all of them have such faults, the run ends at once and says so: how many, with
which code, which class of exception, and what to do. The text of an exception is never shown: it may quote a
user's data.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from flwr.app import Message

from fieldfare import signed_terms
from fieldfare.errors import BadInput, JournalRefused, NodesRefused, Refused
from fieldfare.signed_head import MOST_HEAD, REASONS, HeadRefused, read_told

log = logging.getLogger(__name__)

# Flower's codes for a message, a reply or a node that is not there now.
PASSING = (3, 4, 5)
_ADVICE = {
    0: "look at the nodes' log",
    1: "its ClientApp cannot be imported: look at [tool.flwr.app.components] and at the nodes' packages",
    2: "its ClientApp raised an exception: the nodes' log has the text",
    6: "a mod refused the message: this strategy clips by itself, so remove Flower's clipping and aggregation mods",
    7: "the app's bundle was refused: build and submit it again",
    8: "its process died: memory is a usual cause",
}
_CLASSES = {
    "BFloat16": "reply in float32: arrays of bfloat16 cannot travel (call .float())",
    "NotMasked": "these nodes send masked sums only: aggregation.kind = 'masked', with the blinder that they name",
    "ConfigurationDiffers": "SuperLink gave these nodes another run configuration: ask whoever runs it why",
    "BlinderNotPinned": "aggregation.blinder and the key in each node's own configuration must be the same",
    "BlinderWentBack": "nodes were shown a later row of the blinder's journal: its newest copy, or another blinder",
    "WrongDialect": "these nodes train several users each with ff.private: use dialect = 'cohort'",
    "ids that are no strings": "str(id) in the list of @ff.private.users",
    "ids that stand twice": "each id once in the list of @ff.private.users",
    "CodeRefused": "nodes start only code that their operators allow: docs/node-budget.md, 'Only code that you know'",
    "users that are not there": "the same list at every call of @ff.private.users",
    "no list of users": "@app.query('users') above @ff.private.users, in the module of the training loop",
    "older interface": "ClientApps of the older interface (client_fn, NumPyClient) cannot answer: use @app.train()",
    "no training loop": "@app.train() above @ff.private.train(build), in the module of @ff.private.users",
    "no @app.train()": "@app.train() without a name: a private run sends one kind of instruction",
    "what build makes": "a torch.nn.Module, or a list or a mapping of arrays, from the build of @ff.private.train",
    "no @app.evaluate()": "@app.evaluate() without a name; or leave out fraction_evaluate",
    "trees": "a linear model, or a network: trees have no vector of numbers that could be clipped and bear noise",
}
# What of a reason's text tells a known fault, and the words that are shown for it.
_MARKS = {
    "BFloat16": "BFloat16",
    "fitins": "older interface",
    "Invalid message type": "older interface",
    "ids are not strings": "ids that are no strings",
    "ids occur before in the list": "ids that stand twice",
    "asked users are not hosted here": "users that are not there",
    "there is no list of users in its module": "no list of users",
    "there is no training loop in its module": "no training loop",
    "No train function registered": "no @app.train()",
    "No evaluate function registered": "no @app.evaluate()",
    "trees have no vector": "trees",
    "ff.private.train(build)": "what build makes",
}
# How Flower begins the reason of an exception in a ClientApp.
_CLASS = re.compile(r"<class '([\w.]{1,100})'>")


# The reason by which the replies of nodes are counted that do not find the journal to go on from what they saw.
JOURNAL = "journal refused"
_JOURNAL = f"<class '{HeadRefused.__name__}'> "
# The reason by which the replies of nodes are counted whose own budget refuses.
BUDGET = "node's own budget"
_BUDGET = f"<class '{signed_terms.NodeBudgetRefused.__name__}'> "


class Fault(NamedTuple):
    """One kind of wrong answer."""

    code: int | None  # Flower's code; None: a reply that breaks the contract
    what: str  # the class of the exception, or why the reply was rejected

    def describe(self) -> str:
        """Describe the fault for a person."""
        if self.code is None:
            return f"a reply that cannot be used ({self.what})"
        return f"error code {self.code}" + (f" ({self.what})" if self.what else "")


def journal_refused(how: str, seen: int, shown: int) -> JournalRefused:
    """Return the refusal of a ledger that nodes refuse. seen, shown: numbers of rows, 0 for none."""
    rows = f" The newest row that one saw is {seen}; the journal that it is shown ends in row {shown}." if seen else ""
    return JournalRefused(
        "the ledger's journal",
        f"nodes refuse it, because it does not go on from what they saw: {how}.{rows} If an old copy of the "
        "ledger or of the coordinator's directory was put back, what was spent since would be forgotten.",
        "the newest copy of both; docs/head.md, 'When nodes refuse the journal', says how to find out",
    )


class Failures:
    """The wrong answers of one run in this process."""

    def __init__(self, dialect: str, part: str = "the nodes' ClientApp") -> None:
        """dialect: named in what to do. part: whose answers they are, named in a refusal."""
        self._dialect, self._part = dialect, part
        self._counts: Counter[Fault] = Counter()
        self._journal: Counter[str] = Counter()  # why nodes refuse the journal, in words of `REASONS`
        # Why nodes refuse by their own budget, in words of `signed_terms.REASONS`.
        self._budget: Counter[str] = Counter()
        # Nodes some of whose users have spent their own budget: they say anew who has something left.
        self.spent: set[int] = set()
        self.seen: set[str] = set()  # signed ends of journals, the ledger's or the blinder's, that nodes remember
        self._rows = (0, 0)  # (the newest row that one of them saw, where the journal ends that it was shown)
        self._wrong: set[int] = set()  # nodes that answered, and not as they should
        self._answered = False  # whether any node ever answered as it should
        self._first = ""
        self._silent: set[int] = set()
        # Whether no node ever answered anything, and most of those online were asked and had their time.
        self.silent = False

    def note_answer(self) -> None:
        """Note that a node answered as it should."""
        self._answered, self.silent = True, False

    def refuse(self, reply: Message | None, reason: str, node: int) -> str:
        """Return why the answer of `node` cannot be used, before its arrays are read: the reason to count it
        by, or "".

        Args:
            reply: None where there is none that can be decoded, for `reason`.
        """
        if reply is None:
            self.note_rejected(reason, node)
            return reason
        try:
            if reply.has_error():
                return self.note_error(reply, node)
            _ = reply.content
        except Exception:  # whatever a crafted reply makes Flower's message raise, it is one bad reply
            self.note_rejected("schema", node)
            return "schema"
        return ""

    def note_error(self, reply: Message, node: int) -> str:
        """Note that `node` answered with an error; returns the reason to count it by."""
        code, reason = int(reply.error.code), str(reply.error.reason or "")
        said, mark, line = reason.partition(" fieldfare-")
        self.seen.add((mark[1:] + line)[:MOST_HEAD])
        told = read_told(said.removeprefix(_JOURNAL)) if said.startswith(_JOURNAL) else None
        if told is not None:
            self._note_journal(node, *told)
            return JOURNAL
        word = said.removeprefix(_BUDGET)
        if said.startswith(_BUDGET) and word in signed_terms.REASONS:  # fixed words alone
            self._note_budget(node, word)
            return BUDGET
        found = _CLASS.match(reason)
        name = found[1].rpartition(".")[2] if found else ""
        name += next((f", {mark}" for text, mark in _MARKS.items() if text in reason), "")
        if code not in PASSING:
            self._counts[Fault(code, name)] += 1
            self._wrong.add(node)
        else:
            self._remember(f"a node or its reply was not available (error code {code})")
        return f"error {code}"

    def _note_journal(self, node: int, why: str, seen: int, shown: int) -> None:
        if not self._journal:  # once: how many they are may be secret
            row = f" (it saw row {seen} and is shown row {shown} as the last)" if seen else ""
            log.error("a node refuses the journal: %s%s; docs/head.md says what to do", REASONS[why], row)
        self._journal[why] += 1
        self._rows = max(self._rows, (seen, shown))
        self._wrong.add(node)

    def _note_budget(self, node: int, why: str) -> None:
        if not self._budget:  # once: how many they are may be secret
            log.error("a node's own budget refuses this run: %s (%s)", why, signed_terms.REASONS[why])
        self._budget[why] += 1
        self._wrong.add(node)
        if why == "exceeds":
            self.spent.add(node)

    def note_rejected(self, reason: str, node: int) -> None:
        """Note that the answer of `node` breaks the contract."""
        self._wrong.add(node)
        self._counts[Fault(None, reason)] += 1

    def note_silence(self, silent: Collection[int], asked: int, seconds: float, online: int) -> None:
        """Note that the nodes `silent` did not answer in time; `asked` nodes were asked, and `online` are there."""
        if silent:
            self._silent.update(silent)
            # A few that are silent prove nothing about the others.
            self.silent = 2 * len(self._silent) > online and not (
                self._answered or self._counts or self._journal or self._budget
            )
            self._remember(f"{len(silent)} of {asked} nodes did not answer within {seconds:g} s")

    @property
    def first_cause(self) -> str:
        """The first thing that went wrong, for every later message; empty while nothing did."""
        if self._journal:
            return str(self._journal_refused())
        if self._budget and not self._first:
            return str(self._budget_refused())
        return self._first or (self._describe() if self._counts else "")

    def all_wrong(self, online: int) -> Refused | None:
        """Return the refusal where no node ever answered as it should, and most of the `online` nodes did
        wrong; else None.
        """
        # A few wrong nodes that answer first prove nothing about the app of the others, but for what it lacks.
        lacks = self._counts and not self._silent and all("no @app." in fault.what for fault in self._counts)
        if self._answered or (2 * len(self._wrong) <= online and not lacks):
            return None
        if self._journal:
            return self._journal_refused()
        if self._budget.total() > self._counts.total():
            return self._budget_refused()
        self._remember(self._describe())
        return BadInput(self._part, f"{self._describe()}.", self._advise(), code="nodes-fail")

    def _journal_refused(self) -> JournalRefused:
        """Return the refusal for an older journal, the gravest of faults: no other is named beside it."""
        kinds = "; ".join(f"{count} x {REASONS[why]}" for why, count in self._journal.most_common())
        return journal_refused(kinds, *self._rows)

    def _budget_refused(self) -> NodesRefused:
        told = self._budget.most_common()
        kinds = "; ".join(f"{count} x {why} ({signed_terms.REASONS[why]})" for why, count in told)
        return NodesRefused(
            "the run",
            f"nodes refuse it by the budget that belongs to their users: {kinds}. Nobody was trained.",
            "what their operators agree to; docs/node-budget.md, 'When a node refuses', has each word",
        )

    def _remember(self, cause: str) -> None:
        self._first = self._first or cause

    def _describe(self) -> str:
        kinds = ", ".join(f"{count} x {fault.describe()}" for fault, count in self._counts.most_common())
        none = f"no node of the {len(self._wrong)} that answered did so as it should"
        return f"{'nodes did not answer as they should' if self._answered else none}: {kinds}"

    def _advise(self) -> str:
        fault = self._counts.most_common(1)[0][0]
        for part, advice in _CLASSES.items():
            if part in fault.what:
                return advice
        if self._dialect == "cohort" and fault.code == 2:
            return (
                "a ClientApp with both @ff.private.users and @ff.private.train, or of a fieldfare Task; or dialect = "
                "'plain' for one that knows only Flower"
            )
        if fault.code is None and self._dialect == "cohort":
            return "the model that nodes build: model= of the strategy says what of initial_arrays is trained and tied"
        if fault.code is None:
            return "one ArrayRecord with the names, shapes and floating types that the instruction had"
        return _ADVICE.get(fault.code, _ADVICE[0])

"""What Fieldfare refuses, and how it says so.

Every refusal names what was refused, why, and the nearest thing that would be allowed, and has a code that
stays when its words change. The command line maps `BadInput` to exit code 2, `BudgetRefused` to 3,
`Interrupted` to 4 and `ChargedInVain` to 5.

Example:
    >>> import fieldfare as ff
    >>> try:
    ...     ff.mechanisms.build({"kind": "tre"}, rounds=4)
    ... except ff.errors.BadInput as refusal:
    ...     print(refusal.code, refusal.nearest)
    kind-unknown tree, momentum-tree
"""

from __future__ import annotations

import copyreg
import errno
import re
from collections.abc import Sequence


class FieldfareError(Exception):
    """Base of every error that Fieldfare raises on purpose."""

    code: str = "fieldfare-error"
    """Which error it is, for programs: words may change, codes do not. Without one of its own, that of its class."""
    exit_status = 2  # of the command line

    def __init_subclass__(cls) -> None:
        cls.code = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()

    def __reduce__(self) -> tuple[object, ...]:
        # Exception's own calls the class with the message alone: a pool of processes would wait for ever.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class Refused(FieldfareError):
    """A refusal: what was refused, why, and the nearest allowed thing (empty where there is none)."""

    def __init__(self, what: str, why: str, nearest: str = "", *, code: str = "") -> None:
        self.what, self.why, self.nearest = what, why, nearest
        if code:
            self.code = code
        super().__init__(f"{what}: {why}" + (f" Nearest allowed: {nearest}." if nearest else ""))


class BadInput(Refused, ValueError):
    """The request itself is wrong: an unknown key, a value out of range, an impossible participation."""

    faults: tuple[BadInput, ...]
    """Everything that is wrong with it; this refusal alone where that is one thing."""

    line: int | None
    """Where in the file it is, from 1, where that is known."""

    def __init__(self, what: str, why: str, nearest: str = "", *, code: str = "") -> None:
        super().__init__(what, why, nearest, code=code)
        self.faults, self.line = (self,), None

    def naming(self, nearest: str) -> BadInput:
        """Return this refusal with `nearest` as what is allowed."""
        other = type(self).__new__(type(self))
        BadInput.__init__(other, self.what, self.why, nearest, code=self.code)  # subclasses may take other arguments
        return other

    def at(self, line: int | None) -> BadInput:
        """Return this refusal with its line, which the message shows."""
        located = self.naming(self.nearest)
        if line is not None:
            located.line, located.args = line, (f"line {line}, {self}",)
        return located

    @staticmethod
    def of(faults: Sequence[BadInput]) -> BadInput:
        """Return one refusal of several faults, a line each; it names what the first names."""
        first = faults[0]
        refusal = first.naming(first.nearest)
        refusal.faults, refusal.line = tuple(faults), first.line
        refusal.args = ("\n".join([f"{len(faults)} things are wrong:", *(f"  {fault}" for fault in faults)]),)
        return refusal


class OutOfRange(BadInput):
    """A number is outside of what it may be."""


class WrongForm(BadInput):
    """A value, name, array or table has another type, shape or form than is needed."""


class Unknown(BadInput):
    """A word is none of those that are known here."""


class NotGiven(BadInput):
    """Something that is needed was not given."""


class Conflict(BadInput):
    """Things that were asked together exclude each other."""


class NotFound(BadInput):
    """There is nothing of that name, id or path."""


class AlreadyThere(BadInput):
    """There is something of that name, id or path already."""


class Differs(BadInput):
    """It is not what was recorded or agreed before."""


class NotNow(BadInput):
    """What it is about has ended, is closed, or is in another state that does not allow it."""


class NotAllowed(BadInput):
    """Who asks may not do it, or nobody may, for what it would show or spend."""


class Unsupported(BadInput):
    """It cannot be done: no charge of it is proven, or nothing here does it."""


class TooLarge(BadInput):
    """It would take too much time or memory."""


class TooFew(BadInput):
    """There are too few users, nodes or rows."""


class Unreadable(BadInput):
    """A file or text cannot be read, is torn, or is not of its format."""


class Unwritable(BadInput):
    """A file or directory cannot be written."""


class NotInstalled(BadInput):
    """A package or program that is needed is not installed."""


class BudgetRefused(Refused):
    """The population's budget does not allow it, or the ledger cannot vouch that it does."""

    exit_status = 3


class LedgerError(Refused):
    """The ledger is missing, corrupt, from another version, or held by another coordinator."""


class NoLedger(LedgerError):
    """There is no ledger yet where one is looked for."""


class OldCopy(LedgerError):
    """The ledger is older than, or another than, what this writer has seen."""


class JournalRefused(LedgerError):
    """Nodes refuse the ledger's journal: it does not go on from the head that they were shown before."""


class LedgerCorrupt(LedgerError):
    """Something in the ledger is missing, was changed, or cannot be read."""


class LedgerVersion(LedgerError):
    """The ledger was written by another version of this program."""


class RunHeld(LedgerError):
    """Another coordinator holds the run."""


class OutOfTurn(LedgerError):
    """A run, or a round of it, is not where this call would have it."""


class NodesRefused(BadInput):
    """Nodes refuse the run by the budget that belongs to their users."""


class CheckpointError(Refused):
    """A checkpoint is missing, torn, or does not belong to the run that the ledger describes."""


class EveryUserFailed(FieldfareError):
    """The training of all users of a round failed, where their data are the caller's; its cause is the first error.

    On real nodes nothing raises it: that a user failed is that user's data.
    """


class Interrupted(FieldfareError):
    """The run stopped before its end but can be resumed."""

    exit_status = 4


class ChargedInVain(FieldfareError):
    """It was charged and ended without a result. It cannot be resumed, and nothing is given back."""

    exit_status = 5


def is_of_the_disk(error: BaseException | None) -> bool:
    """Return whether `error`, or what caused it, is a disk that is full, read-only or broken."""
    while error is not None:
        if getattr(error, "errno", None) in _OF_THE_DISK or getattr(error, "code", None) == "disk-full":
            return True
        error = error.__cause__
    return False


_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)

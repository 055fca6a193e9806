"""Named points at which a test can break the process. They do nothing unless the environment arms them.

`FIELDFARE_FAULT=point:action[:nth]` (several joined by commas) arms a point: when it is passed for the nth
time (default 1), the action happens. Actions: `kill` (SIGKILL to this process, so nothing cleans up), `raise`
(`FaultInjected`), `enospc` (`OSError(ENOSPC)`), `eio` (`OSError(EIO)`).

Crash safety is only as good as its tests, and a test needs the crash between two particular instructions.
That is why the points are part of the product; an unarmed point costs one dictionary look-up.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping

from fieldfare.errors import Unknown, WrongForm

VARIABLE = "FIELDFARE_FAULT"

POINTS = (
    "ledger.transaction.begun",
    "ledger.transaction.worked",
    "ledger.transaction.committed",
    "ledger.segment.written",
    "ledger.head.written",
    "ledger.round.opening",
    "ledger.round.opened",
    "round.closing.written",
    "ledger.round.closing",
    "ledger.round.closed",
    "ledger.round.voiding",
    "ledger.round.voided",
    "ledger.round.committing",
    "ledger.round.committed",
    "ledger.run.finishing",
    "ledger.run.finished",
    "run.secret-destroyed",
    "checkpoint.writing",
    "checkpoint.half-written",
    "checkpoint.written",
    "checkpoint.synced",
    "checkpoint.pending",
    "checkpoint.promoting",
    "checkpoint.promoted",
    "checkpoint.pruned",
    "strategy.selected",
    "strategy.sent",
    "strategy.aggregated",
    "strategy.asked",
    "strategy.summed",
    "strategy.privatised",
    "strategy.stepped",
    "strategy.released",
)
ACTIONS = ("kill", "raise", "enospc", "eio")


class FaultInjected(RuntimeError):
    """The action `raise` at an armed point."""


class _Armed:
    def __init__(self, action: str, nth: int) -> None:
        self.action, self.left = action, nth


_armed: dict[str, _Armed] = {}


def load(environment: Mapping[str, str]) -> None:
    """Arm exactly what `environment[FIELDFARE_FAULT]` names. Raises `BadInput` on an unknown name."""
    _armed.clear()
    for entry in filter(None, environment.get(VARIABLE, "").split(",")):
        name, _, rest = entry.partition(":")
        action, _, nth = rest.partition(":")
        if name not in POINTS:
            raise Unknown(f"{VARIABLE} = {entry!r}", "there is no such fault point.", ", ".join(POINTS))
        if action not in ACTIONS:
            raise Unknown(f"{VARIABLE} = {entry!r}", "there is no such action.", ", ".join(ACTIONS))
        if nth and not nth.isdecimal():
            raise WrongForm(f"{VARIABLE} = {entry!r}", "the last part counts passings.", "1")
        _armed[name] = _Armed(action, int(nth or 1))


def point(name: str) -> None:
    """Break the process here if `name`, one of `POINTS`, is armed and its turn has come."""
    armed = _armed.get(name)
    if armed is None:
        return
    armed.left -= 1
    if armed.left:
        return
    if armed.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if armed.action == "raise":
        raise FaultInjected(name)
    code = errno.ENOSPC if armed.action == "enospc" else errno.EIO
    raise OSError(code, f"{os.strerror(code)} (injected)", name)


load(os.environ)

"""What a run that stops before its end leaves, and says: one that has committed a round can be resumed."""

from __future__ import annotations

from fieldfare.errors import FieldfareError, Interrupted, Refused
from fieldfare_server.run.presence.selection import NotEnoughUsers
from fieldfare_server.run.session import Session


def stop_run(session: Session, cause: BaseException) -> FieldfareError:
    """The error of a run that Ctrl-C, absent nodes or missing users stopped.

    A run without a committed round ends here: it has spent nothing, and its whole reservation returns. Any other keeps
    what it reserved, and its lease goes back when the session closes.

    Args:
        cause: a `KeyboardInterrupt`, `Interrupted` or `NotEnoughUsers`.
    """
    run, rounds = session.account.id, session.plan.run.rounds
    if isinstance(cause, KeyboardInterrupt):
        why = f"it was interrupted after {session.next_round} of {rounds} rounds."
    elif isinstance(cause, NotEnoughUsers):
        why = f"it ran out of users after {session.next_round} of {rounds} rounds. {cause}"
    else:
        why = str(cause).removeprefix(f"run {run}: ")
    if session.next_round == 0:
        session.finish("failed", why)
        return Refused(
            f"run {run}",
            f"{why} No round was committed, so the run has ended, and all that it reserved is free again.",
            "remove the cause and start it again",
        )
    end = f", or end it with `fieldfare abandon {run} --reason ...`" if isinstance(cause, NotEnoughUsers) else ""
    return Interrupted(f"run {run}: {why} Continue it with --resume {run}{end}.")

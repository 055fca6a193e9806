"""Why a run stops before its end, what it leaves, and says: whether it can be resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fieldfare.errors import BadInput, FieldfareError, Interrupted, Refused, is_of_the_disk
from fieldfare_server.run.presence.selection import NotEnoughUsers, TooFewHere

if TYPE_CHECKING:
    from fieldfare_server.run.session import Session


def stop_run(session: Session, cause: BaseException) -> FieldfareError:
    """Return the error of a run that Ctrl-C, a full disk, absent nodes or users, or a fault of all users stopped.

    A run that nodes or users stop before its first commit ends here, for it would fail again: it has spent
    nothing, and its whole reservation returns. Any other keeps what it reserved; its lease goes back when the
    session closes.

    Args:
        cause: a `KeyboardInterrupt`, `Interrupted`, `NotEnoughUsers`, `EveryUserFailed`, error of the
            disk, or `OSError`: a file that is out of reach for now.
    """
    run, rounds = session.account.id, session.plan.run.rounds
    if isinstance(cause, KeyboardInterrupt):
        why = f"it was interrupted after {session.next_round} of {rounds} rounds."
    elif isinstance(cause, NotEnoughUsers):
        why = f"it ran out of users after {session.next_round} of {rounds} rounds. {cause}"
    elif is_of_the_disk(cause):
        where = f"{cause.what}: {cause.why}" if isinstance(cause, Refused) else f"{cause}."
        why = f"{where} Make room, or mend the disk."
    else:
        why = str(cause).removeprefix(f"run {run}: ").removesuffix(".") + "."
    # A closed round may have been opened: only a person ends it.
    closed = session.rounds.sums.closed is not None
    passes = isinstance(cause, KeyboardInterrupt | OSError) or is_of_the_disk(cause) or closed
    if session.next_round == 0 and not passes:
        nearest = "remove the cause and start it again"
        if isinstance(cause, NotEnoughUsers):
            begin = "" if isinstance(cause, TooFewHere) else f"it ran out of users after 0 of {rounds} rounds. "
            why, nearest = f"{begin}{cause.what}: {cause.why}", cause.nearest
        session.finish("failed", f"{why} Nearest allowed: {nearest}.")
        return Refused(
            f"run {run}",
            f"{why} No round was committed, so the run has ended, and all that it reserved is free again.",
            nearest,
            code="nothing-committed",
        )
    given_up = isinstance(cause, NotEnoughUsers) or session.next_round == 0
    end = f", or end it with `fieldfare abandon {run} --reason ...`" if given_up else ""
    if session.files is None:  # a rehearsal
        return Interrupted(f"{why} It was charged to nobody, and nothing of it is kept: begin it again.")
    return Interrupted(f"run {run}: {why} Continue it with --resume {run}, in Python with resume={run!r}{end}.")


def require_finite_model(session: Session) -> None:
    """End a run whose model diverged. The model is released and charged; to train on would only spend more.

    Raises `BadInput`.
    """
    if session.model.is_finite(session.rounds.newest.params):
        return
    how = f"it is not finite after round {session.coming_round}"
    session.finish("failed", f"the model diverged: {how}")
    raise BadInput(
        f"server_optimizer and client learning rates of run {session.account.id}",
        f"the released model diverged: {how}.",
        "smaller learning rates",
        code="diverged",
    )

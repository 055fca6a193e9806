"""Why a run stops before its end, what it leaves, and says: one that has committed a round can be resumed."""

from __future__ import annotations

from fieldfare.errors import BadInput, FieldfareError, Interrupted, Refused
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


def require_finite_model(session: Session) -> None:
    """End a run whose model diverged. The model is released and charged; further training would only spend more.

    Raises `BadInput`.
    """
    if session.model.is_finite(session.rounds.newest.params):
        return
    last = session.coming_round - 1
    session.finish("failed", f"the model was not finite any more after round {last}")
    raise BadInput(
        f"server_optimizer and client learning rates of run {session.account.id}",
        f"the released model diverged: it is not finite after round {last}.",
        "smaller learning rates",
    )

"""A run goes on with the users with whom it began: their set is fixed by a salted digest, and compared at resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

import fieldfare as ff
from fieldfare.errors import BadInput, WrongForm
from fieldfare.plan import Plan
from fieldfare_server.cli.application import application
from fieldfare_server.deployment.simulation import _mark_interrupted
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.holders import SIMULATION
from fieldfare_server.planning.questions import Asked
from fieldfare_server.run.session import Session
from support.federation import USERS as USERS_OF_TINY
from support.federation import TinyTask, home
from support.refusals import coded

PLAN = {
    "privacy": {"population": "people", "noise_multiplier": 2.0, "delta": 1e-5},
    "run": {"task": "support.federation:TinyTask", "rounds": 3, "cohort": 2},
    "mechanism": {"kind": "independent"},
}
USERS = np.array([11, 22, 33], np.uint64)


def interrupt(session: Session) -> str:
    with pytest.raises(KeyboardInterrupt), session:
        raise KeyboardInterrupt
    return session.account.id


@pytest.mark.parametrize(
    "others", [[11, 22], [11, 22, 33, 44], [11, 22, 34], []], ids=["one less", "one more", "another", "none"]
)
def test_other_users_do_not_resume_a_run_and_leave_it_to_its_own(tmp_path: Path, others: list[int]) -> None:
    where = home(tmp_path, epsilon=200.0)
    run = interrupt(Session.begin(where, Plan.parse(PLAN), True, users=lambda _: USERS))
    with pytest.raises(BadInput) as refused:
        Session.resume(where, run, True, users=lambda _: np.array(others, np.uint64))
    assert refused.value.code == "other-users"
    with Ledger.open(where.ledger) as ledger:
        assert ledger.run(run).ended_at is None
    interrupt(Session.resume(where, run, True, users=lambda _: USERS[::-1]))


def test_a_larger_model_does_not_resume_a_run_that_is_charged_for_a_smaller_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first checkpoint, which names a schema, the floats of its noise were charged for too few numbers."""
    where = home(tmp_path, epsilon=200.0)
    run = interrupt(Session.begin(where, Plan.parse(PLAN), True))
    with monkeypatch.context() as edited:
        edited.setattr(TinyTask, "build_model", lambda self: torch.nn.Sequential(torch.nn.Linear(3, 1000)))
        with pytest.raises(BadInput, check=coded("differs", f"the model of run {run}", "4000 numbers")):
            Session.resume(where, run, True)
    interrupt(Session.resume(where, run, True))


def goes_on(where: StateDirectory, run: str) -> list[Callable[[], object]]:
    """All ways to go on with `run` on users of this machine."""
    return [
        lambda: ff.simulate(resume=run, ledger=where.root, progress=False),
        lambda: ff.ask(resume=run, ledger=where.root),
        lambda: CliRunner().invoke(application, ["simulate", "--resume", run, "--home", str(where.root)]),
        lambda: CliRunner().invoke(application, ["ask", "--resume", run, "--home", str(where.root)]),
    ]


@pytest.mark.parametrize("question", [None, {"kind": "mean", "measure": "y", "low": -4, "high": 4}])
def test_a_federations_run_does_not_go_on_with_users_of_this_machine(
    question: dict[str, object] | None, tmp_path: Path
) -> None:
    """They would be charged, and answer, in the name of the nodes' users."""
    where = home(tmp_path, epsilon=200.0)
    begun = Plan.parse(PLAN)
    if question is not None:
        run = {"task": "support.federation:TinyTask", "cohort": USERS_OF_TINY, "trust_node_ids": True}
        begun = Asked.of({"question": question, "run": run, "privacy": PLAN["privacy"]}).plan_for_nodes()
    run = interrupt(Session.begin(where, begun, True))
    for way in goes_on(where, run)[:: 2 if question is None else 1]:
        try:
            done = way()
            assert isinstance(done, Result), "it went on"
            assert done.exit_code == 2, done.output
            said = done.output
        except BadInput as refused:
            said = str(refused)
        assert f"fieldfare run --resume {run} --superlink" in " ".join(said.split())
    with Ledger.open(where.ledger) as ledger:
        assert ledger.run(run).ended_at is None
        assert ledger.population("people").spent_epsilon == 0


def test_a_simulation_does_not_go_on_with_the_users_of_nodes(tmp_path: Path) -> None:
    where = home(tmp_path, epsilon=200.0)
    simulated = interrupt(Session.begin(where, Plan.parse(PLAN), True, SIMULATION))
    with pytest.raises(BadInput, check=coded("other-users", f"simulate --resume {simulated}")):
        Session.resume(where, simulated, True)
    interrupt(Session.resume(where, simulated, True, SIMULATION))


def test_a_simulation_under_flower_that_was_interrupted_is_left_to_resume(tmp_path: Path) -> None:
    """Who noted that its coordinator is gone was taken for a federation, and Ctrl-C ended in a refusal."""
    where = home(tmp_path, epsilon=200.0)
    run = interrupt(Session.begin(where, Plan.parse(PLAN), True, SIMULATION))
    _mark_interrupted(where, run)
    with Ledger.open(where.ledger) as ledger:
        assert (ledger.run(run).state, ledger.run(run).message) == ("interrupted", "interrupted")
    interrupt(Session.resume(where, run, True, SIMULATION))


def test_rows_that_cannot_be_read_are_not_quoted_in_the_ledger(tmp_path: Path) -> None:
    """As of a file that somebody has edited meanwhile: the refusal is for the terminal of who holds the rows."""

    def unreadable(_: str) -> np.ndarray:
        raise WrongForm("people.csv, line 5", "'HIV' is not a number.")

    where = home(tmp_path, epsilon=200.0)
    run = interrupt(Session.begin(where, Plan.parse(PLAN), True, users=lambda _: USERS))
    with pytest.raises(BadInput, match="HIV"):
        Session.resume(where, run, True, users=unreadable)
    with Ledger.open(where.ledger) as ledger:
        assert not [row for row in ledger.events() if "HIV" in str(row.body)]
        assert "HIV" not in ledger.run(run).message


def test_the_digest_tells_nobody_who_they_are_and_goes_with_the_key(tmp_path: Path) -> None:
    written = []
    for run in ("a", "b"):
        files = RunFiles(tmp_path, run)
        files.create(bytes(32))
        assert files.has_users(USERS)
        path = tmp_path / run / "users.digest"
        assert path.stat().st_mode & 0o777 == 0o600
        assert path in files.secrets()
        written.append(path.read_bytes())
        files.destroy()
        assert not path.exists()
    assert written[0][:32] != written[1][:32], "each run has a salt of its own"
    assert written[0][32:] != written[1][32:]
    assert {len(each) for each in written} == {64}, "whatever the number of users"

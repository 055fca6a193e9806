"""No rollback makes one noise serve two sums: a restored home, a copied one, a rewound process (finding P2).

Two releases of one round differ by the difference of their sums and by noise. If the noise is the same, the whitened
difference (release - release' - (sum - sum')) / std is 0; if it is independent, it has the standard deviation sqrt(2).
"""

from __future__ import annotations

import multiprocessing
import secrets
import shutil
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from flwr.app import Error, Message
from numpy.typing import NDArray

from fieldfare.costing import cost_of
from fieldfare.errors import BadInput, CheckpointError, Interrupted, JournalRefused, LedgerError
from fieldfare.plan import Plan
from fieldfare.signed_head import SignedHead
from fieldfare.task import seeded
from fieldfare_client import witness
from fieldfare_flower.messages import HEAD, Occasion
from fieldfare_server import faults
from fieldfare_server.evidence.forks import find_fork
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import HeadFile, Ledger, Outcome
from fieldfare_server.ledger.chain import held_heads
from fieldfare_server.run.rehearsal import Rehearsal
from fieldfare_server.run.round.rounds import Rounds
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, TinyTask, home, plan
from support.refusals import coded

WIDTH = 3000


class WideTask(TinyTask):
    """Enough parameters to tell one noise from another."""

    name: ClassVar[str] = "wide"

    def build_model(self) -> torch.nn.Module:
        with seeded(self.seed):
            return torch.nn.Sequential(torch.nn.Linear(WIDTH, 1))

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        return {"r": 0.0}


MECHANISMS: list[dict[str, Any]] = [
    {"kind": "nu", "nu": 0.1},
    {"kind": "tree", "estimator": "online"},
    {"kind": "tree", "estimator": "plain", "nodes": "all"},
    {"kind": "dense", "engine": "replay"},
    {"kind": "blt", "restart_every": 2},
]


def wide(**changes: Any) -> Plan:
    """A private plan: without a fixed seed, its runs have nonces. The model is the running sum of what is released."""
    setting = {
        "run__task": "test_rollbacks:WideTask",
        "run__noise_seed": None,
        "run__cohort": 6,
        "server_optimizer": {"kind": "sgd", "learning_rate": 1.0},
    }
    return plan(**{**setting, **changes})


def update(seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=WIDTH + 1) * 1e-3


def play_round(rounds: Rounds, account: Any, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """One round whose sum is `values`; returns what it moved the model by."""
    before = rounds.commits.released.params.double().numpy().copy()
    index = rounds.commits.released.next_round
    users = account.register_users(np.arange(6 * (index % 3), 6 * (index % 3) + 6, dtype=np.uint64))
    opened = account.open_round(users)
    total = rounds.empty_sum(Occasion(account.id, opened.index, opened.attempt), (1.0,))
    total.total[:] = values
    if total.grid is not None:
        total.grid.snap_(torch.from_numpy(total.total))
    total.users = 6
    rounds.commit_round(opened, total, [users])
    return rounds.commits.released.params.double().numpy() - before


def live(state_dir: StateDirectory, run_id: str, seeds: list[int], a_plan: Plan | None = None) -> list[Any]:
    """Begin (with a plan) or resume the run, and play a round for each seed; what each moved the model by."""
    if a_plan is not None:
        session = Session.begin(state_dir, a_plan, identity_is_stable=True, run_id=run_id)
    else:
        session = Session.resume(state_dir, run_id, identity_is_stable=True)
    with session:
        return [play_round(session.rounds, session.account, update(seed)) for seed in seeds]


def moved(root: Path, name: str) -> StateDirectory:
    return StateDirectory(root / name, f"sqlite:///{root / name / 'ledger.sqlite3'}", lease_patience=5.0)


def require_independent(a_plan: Plan, shared: list[Any], seeds: list[int], ends: list[Any], forks: list[int]) -> None:
    """Refuse two releases of one round that share noise.

    With B B^T = L L^T and R = L^-1, the innovations R (noise so far) / std are independent unit Gaussians, whatever the
    rounds before had in common. n = 3001 coordinates; each bound lies 5.4 standard errors away: four checks have a
    false alarm below 4 x 7e-8.

    Args:
        shared: what each round before the fork moved the model by; `seeds`: of their sums.
        ends: what the round of the fork moved it by in either branch; `forks`: the seeds of its two sums.
    """
    rehearsed = Session.rehearse(a_plan, noise=True)
    rounds = Rounds(a_plan, cost_of(a_plan), Rehearsal(), None, rehearsed.noise, rehearsed.model)
    std = rounds.running_noise.privatiser.std
    cost, t, n = cost_of(a_plan), len(shared), WIDTH + 1
    b = cost.mechanism.noising_matrix(a_plan.run.rounds)[: t + 1]
    past = [6 * move - update(seed) for move, seed in zip(shared, seeds, strict=True)]
    first, second = (
        np.linalg.solve(np.linalg.cholesky(b @ b.T), np.stack([*past, 6 * move - update(seed)]))[t] / std
        for move, seed in zip(ends, forks, strict=True)
    )
    assert abs(np.sqrt(np.mean((first - second) ** 2)) - np.sqrt(2)) < 5.4 * np.sqrt(2) / np.sqrt(2 * n)
    assert abs(np.mean(first * second)) < 5.4 / np.sqrt(n)
    for innovation in (first, second):
        assert abs(np.sqrt(np.mean(innovation**2)) - 1) < 5.4 / np.sqrt(2 * n)


def whole(state_dir: StateDirectory) -> None:
    with Ledger.open(state_dir.ledger) as ledger:
        held = held_heads([HeadFile(state_dir.head_file)])
        report = verify(ledger, state_dir.root, recompute=recharge, held=held)
    assert report.ok, str(report.fault)


@pytest.mark.parametrize("rounding", ["grid", "none"])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_a_restored_home_draws_other_noise(mechanism: dict[str, Any], rounding: str, tmp_path: Path) -> None:
    """Begin, 2 rounds, copy the home, 1 round, put the copy back, resume, 1 round with other updates."""
    a_plan = wide(mechanism=mechanism, privacy__rounding=rounding)
    state_dir = home(tmp_path, simulated=False)
    shared = live(state_dir, "restored", [1, 2], a_plan)
    shutil.copytree(state_dir.root, tmp_path / "backup")
    (first,) = live(state_dir, "restored", [3])
    state_dir.root.rename(tmp_path / "lost")
    shutil.copytree(tmp_path / "backup", state_dir.root)
    (second,) = live(state_dir, "restored", [4])
    require_independent(a_plan, shared, [1, 2], [first, second], [3, 4])
    # Each branch alone is whole. Who is shown both sees the fork, at the round in which they part.
    whole(state_dir)
    with Ledger.open(state_dir.ledger) as here, Ledger.open(moved(tmp_path, "lost").ledger) as lost:
        fork = find_fork(here, lost)
    assert fork is not None
    assert (fork.table, fork.row) == ("rounds", "restored 2")
    assert "nonce" in fork.why


def test_a_copied_home_run_twice_draws_other_noise_and_verify_names_the_fork(tmp_path: Path) -> None:
    a_plan = wide()
    state_dir = home(tmp_path, simulated=False)
    shared = live(state_dir, "copied", [1], a_plan)
    shutil.copytree(state_dir.root, tmp_path / "copy")
    copy = moved(tmp_path, "copy")
    with Ledger.open(state_dir.ledger) as here, Ledger.open(copy.ledger) as there:
        assert find_fork(here, there) is None
    # Of a ledger that is no copy at all it said that nothing differs.
    with Ledger.open(f"sqlite:///{tmp_path / 'new.sqlite3'}", create=True) as new:
        new.create_population("people", 1.0, 1e-6, actor="test")
        with Ledger.open(state_dir.ledger) as here:
            fork = find_fork(here, new)
    assert fork is not None
    assert (fork.table, fork.row) == ("audit", "1")
    one, other = live(state_dir, "copied", [2, 3]), live(copy, "copied", [4, 3])
    require_independent(a_plan, shared, [1], [one[0], other[0]], [2, 4])
    # Even the same updates in the next round meet other noise: no row after the fork is shared.
    assert not np.allclose(one[1], other[1])
    for place in (state_dir, copy):
        whole(place)
    with Ledger.open(state_dir.ledger) as here, Ledger.open(copy.ledger) as there:
        for fork in (find_fork(here, there), find_fork(there, here)):
            assert fork is not None
            assert (fork.table, fork.row) == ("rounds", "copied 1")
    # A checkpoint of one branch under the ledger of the other is named, and not resumed.
    checkpoints = state_dir.root / "copied" / "checkpoints"
    shutil.rmtree(checkpoints)
    shutil.copytree(copy.root / "copied" / "checkpoints", checkpoints)
    with Ledger.open(state_dir.ledger) as ledger:
        fault = verify(ledger, state_dir.root).fault
    assert fault is not None
    assert fault.table == "checkpoints"
    with pytest.raises(CheckpointError):
        Session.resume(state_dir, "copied", identity_is_stable=True)


class Remembered(Rehearsal):
    """An account with nonces and without a ledger."""

    def __init__(self) -> None:
        super().__init__()
        self.nonces = []


@pytest.mark.parametrize("same_bits", [False, True])
def test_a_process_copied_before_it_privatises_draws_other_noise(
    same_bits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is paused between sum and noise, and copied; each copy then sums other updates.

    `same_bits`: the operating system gives both copies the same bits, as in a virtual machine without a generation id.
    """
    a_plan = wide()
    account = Remembered()
    key = secrets.token_bytes(32)
    session = Session(a_plan, cost_of(a_plan), account, None, key)
    shared = [play_round(session.rounds, account, update(1))]
    if same_bits:
        monkeypatch.setattr(secrets, "token_bytes", lambda n: bytes(n))
    context = multiprocessing.get_context("fork")
    results = []
    for seed in (2, 3):

        def child(seed: int, sender: Connection) -> None:
            torch.set_num_threads(1)
            sender.send(play_round(session.rounds, account, update(seed)))

        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=child, args=(seed, sender))
        process.start()
        results.append(receiver.recv())
        process.join()
        assert process.exitcode == 0
    require_independent(a_plan, shared, [1], results, [2, 3])


def test_a_nonce_is_made_after_the_sum_and_depends_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    a_plan, key = wide(), secrets.token_bytes(32)
    monkeypatch.setattr(secrets, "token_bytes", lambda n: bytes(n))
    nonces = []
    for values in (update(1), update(1), update(2), np.roll(update(1), 1)):
        account = Remembered()
        rounds = Session(a_plan, cost_of(a_plan), account, None, key).rounds
        play_round(rounds, account, values)
        assert rounds._nonces is not None
        nonces.append(rounds._nonces[0])
    assert nonces[0] == nonces[1]
    assert len(set(nonces)) == 3
    account = Remembered()
    account.id = "another"
    rounds = Session(a_plan, cost_of(a_plan), account, None, key).rounds
    play_round(rounds, account, update(1))
    assert rounds._nonces is not None
    assert rounds._nonces[0] not in nonces


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_a_resumed_run_is_the_uninterrupted_one(
    mechanism: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, where the operating system gives the same bits."""
    monkeypatch.setattr("fieldfare_server.run.session.secrets", SimpleNamespace(token_bytes=lambda n: bytes(range(n))))
    monkeypatch.setattr("fieldfare_server.run.round.rounds.secrets", SimpleNamespace(token_bytes=bytes))
    outcomes = []
    for name, lives in (("whole", [[1, 2, 3, 4]]), ("parts", [[1], [2, 3], [4]])):
        state_dir = home(tmp_path / name, simulated=False)
        outcome = live(state_dir, "same", lives[0], wide(mechanism=mechanism))
        for seeds in lives[1:]:
            outcome += live(state_dir, "same", seeds)
        whole(state_dir)
        outcomes.append(outcome)
    np.testing.assert_array_equal(outcomes[0], outcomes[1])


@pytest.mark.parametrize(
    "point", ["strategy.summed", "strategy.privatised", "checkpoint.pending", "checkpoint.promoting"]
)
def test_a_crash_is_rolled_forward_with_the_checkpoints_bytes_or_voided(point: str, tmp_path: Path) -> None:
    state_dir = home(tmp_path, simulated=False)
    live(state_dir, "crash", [1], wide())
    faults.load({faults.VARIABLE: f"{point}:raise"})
    try:
        with pytest.raises(faults.FaultInjected):
            live(state_dir, "crash", [2])
    finally:
        faults.load({})
    pending = {path.stem for path in (state_dir.root / "crash" / "pending").iterdir()}
    with Session.resume(state_dir, "crash", identity_is_stable=True) as session:
        assert session.next_round == (2 if point.startswith("checkpoint") else 1)
        with Ledger.open(state_dir.ledger) as ledger:
            assert not pending or pending == {ledger.run("crash").checkpoint}
        play_round(session.rounds, session.account, update(3))
    whole(state_dir)


def test_a_void_attempt_leaves_no_nonce(tmp_path: Path) -> None:
    state_dir = home(tmp_path, simulated=False)
    with Session.begin(state_dir, wide(), identity_is_stable=True, run_id="void") as session:
        account = session.account
        users = account.register_users(np.arange(6, dtype=np.uint64))
        account.void_round(account.open_round(users), "too few")
        play_round(session.rounds, account, update(1))
    with Ledger.open(state_dir.ledger) as ledger, ledger.database.read() as connection:
        rows = connection.exec_driver_sql("SELECT state, nonce FROM rounds ORDER BY id").all()
    assert [(state, nonce is None) for state, nonce in rows] == [("void", True), ("committed", False)]
    whole(state_dir)


@pytest.mark.parametrize("edit", ['UPDATE rounds SET nonce = NULL WHERE "index" = 1', "longer"])
def test_a_nonce_list_unlike_the_rounds_is_refused(edit: str, tmp_path: Path) -> None:
    state_dir = home(tmp_path, simulated=edit == "longer")
    seeded_plan = wide(run__noise_seed=11) if edit == "longer" else wide()
    live(state_dir, "odd", [1, 2], seeded_plan)
    if edit == "longer":  # a run without nonces that has one
        edit = f"UPDATE rounds SET nonce = '{'ab' * 16}' WHERE \"index\" = 1"
    with Ledger.open(state_dir.ledger) as ledger, ledger.database.engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER rounds_keep")
        connection.exec_driver_sql(edit)
    with pytest.raises(LedgerError, check=coded("disproved")):
        Session.resume(state_dir, "odd", identity_is_stable=True)
    with Ledger.open(state_dir.ledger) as ledger:
        fault = verify(ledger).fault
    assert fault is not None
    assert (fault.table, fault.row) == ("rounds", "odd 1.0")


def test_commits_need_exactly_the_nonce_that_their_run_has(tmp_path: Path) -> None:
    for name, a_plan, wrong in (
        ("private", wide(), (None, b"short")),
        ("seeded", wide(run__noise_seed=1), (bytes(16),)),
    ):
        state_dir = home(tmp_path / name)
        with Session.begin(state_dir, a_plan, identity_is_stable=True, run_id=name) as session:
            account = session.account
            opened, nothing = account.open_round([]), np.zeros(0, dtype=np.int64)
            for nonce in wrong:
                with pytest.raises(BadInput, check=coded("differs", "the nonce of round")):
                    account.commit_round(
                        opened, Outcome([], session.released.spent, nonce=nonce, charges=nothing), "0" * 64
                    )
            account.void_round(opened, "test")


def test_a_seeded_run_is_the_same_again(tmp_path: Path) -> None:
    """It is not private, and draws as before there were nonces: the same seed gives the same model."""
    rows = [live(home(tmp_path / str(i)), "seeded", [1, 2], wide(run__noise_seed=11))[1] for i in range(2)]
    np.testing.assert_array_equal(rows[0], rows[1])


def train(state_dir: StateDirectory) -> None:
    session = Session.begin(state_dir, plan(), identity_is_stable=True)
    with session:
        FieldfareStrategy(session).start(LyingGrid(3))


def test_nodes_that_saw_more_end_the_run_under_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole home put back from an old copy. It was told as a fault of the ClientApp."""
    memory = tmp_path / "witness"
    monkeypatch.setenv(witness.VARIABLE, str(memory))
    state_dir = home(tmp_path)
    train(state_dir)
    backup = tmp_path / "backup"
    shutil.copytree(tmp_path / "home", backup)
    train(state_dir)
    seen = SignedHead.parse(memory.read_text()).count
    shutil.rmtree(tmp_path / "home")
    shutil.copytree(backup, tmp_path / "home")
    with pytest.raises(JournalRefused) as refused:
        train(state_dir)
    words = str(refused.value)
    assert "refuse it" in words
    assert "one proves that it ends before a row that was seen." in words
    assert f"that one saw is {seen}; the journal that it is shown ends in row " in words
    assert "When nodes refuse the journal" in words
    assert "plain" not in words
    assert "ClientApp" not in words
    with Ledger.open(state_dir.ledger) as ledger:
        last = ledger.runs().items[0]
        assert (last.state, last.next_round) == ("failed", 0)
        assert last.message == words
    assert SignedHead.parse(memory.read_text()).count == seen


def test_nodes_without_their_memory_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = tmp_path / "witness"
    memory.write_text("")
    monkeypatch.setenv(witness.VARIABLE, str(memory))
    with pytest.raises(JournalRefused, check=coded("journal-refused", "the ledger's journal")):
        train(home(tmp_path))


EVERYBODY: dict[str, Any] = {"run__cohort": 24, "participation": {"scheme": "min-separation", "separation": 1}}


def only_one_remembers(grid: LyingGrid) -> None:
    first, *others = grid._contexts.values()
    assert HEAD in first.state
    for context in others:
        context.state.pop(HEAD, None)


SAMPLED: dict[str, Any] = {
    "participation": {"scheme": "poisson", "rate": 0.9},
    "privacy__adjacency": "add_remove",
    "mechanism": {"kind": "independent"},
    "run__min_reports": None,
    "run__noise_seed": 11,
}


@pytest.mark.parametrize("at_once", [True, False], ids=["hello", "refusal"])
@pytest.mark.parametrize("changes", [EVERYBODY, SAMPLED], ids=["public", "secret"])
def test_one_node_that_remembers_ends_a_run_of_a_ledger_that_was_put_back(
    changes: dict[str, Any], at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are enough others for a round. A copy that is at work beside the ledger is seen by the refusal alone."""
    state_dir, grid = home(tmp_path, adjacency=changes.get("privacy__adjacency", "zero_out")), LyingGrid(6)

    def start() -> None:
        with Session.begin(state_dir, plan(**changes, run__rounds=2), identity_is_stable=True) as session:
            FieldfareStrategy(session).start(grid)

    start()
    shutil.copytree(state_dir.root, tmp_path / "backup")
    start()
    shutil.rmtree(state_dir.root)
    shutil.copytree(tmp_path / "backup", state_dir.root)
    only_one_remembers(grid)
    if not at_once:
        monkeypatch.setattr("fieldfare_client.app.write_witness", lambda head: {})
    asked = len(grid.seen)
    with pytest.raises(JournalRefused, check=coded("journal-refused", "the ledger's journal", "docs/head.md")) as told:
        start()
    assert len(grid.seen) == asked + (0 if at_once else 6)
    with Ledger.open(state_dir.ledger) as ledger:
        last = ledger.runs().items[0]
        assert (last.state, last.next_round, last.message) == ("failed", 0, str(told.value))


def test_a_run_under_way_whose_ledger_was_put_back_waits_for_its_newest_copy(tmp_path: Path) -> None:
    """One node proves it. What else nodes tell proves nothing, nor does a row that another run has just written."""
    state_dir, grid = home(tmp_path), LyingGrid(6)
    with Session.begin(state_dir, plan(**EVERYBODY, run__rounds=4), identity_is_stable=True, run_id="run") as session:
        FieldfareStrategy(session).run_round(grid)
    older = grid._contexts[grid.seen[-1].metadata.dst_node_id].state[HEAD]["head"]
    shutil.copytree(state_dir.root, tmp_path / "backup")
    with Session.resume(state_dir, "run", identity_is_stable=True) as session:
        FieldfareStrategy(session).run_round(grid)
    state_dir.root.rename(tmp_path / "newest")
    shutil.copytree(tmp_path / "backup", state_dir.root)
    only_one_remembers(grid)
    with (
        Session.resume(state_dir, "run", identity_is_stable=True) as session,
        pytest.raises(Interrupted, match=r"docs/head\.md"),
    ):
        FieldfareStrategy(session).start(grid)
    with Ledger.open(state_dir.ledger) as ledger:
        assert (ledger.run("run").state, ledger.run("run").next_round) == ("interrupted", 1)

    shutil.rmtree(state_dir.root)
    (tmp_path / "newest").rename(state_dir.root)
    key, told = HeadFile(state_dir.head_file).key(), list[str]()

    def newest() -> str:
        with Ledger.open(state_dir.ledger, head_file=state_dir.head_file, coordinator=True) as ledger:
            ledger.create_token(f"x{len(told)}", ("read",), actor="officer")
            return str(ledger.signed_head())

    def line(count: int, private: bytes = key, ledger: str = "") -> str:
        return str(SignedHead.of(ledger or str(older).split()[1], count, "ab" * 32, private))

    lines = [lambda: line(10**18, bytes(32)), lambda: line(99, key, "cd" * 16), lambda: str(older), newest]
    lines.append(lambda: line(99) + "0" * 600)

    def lying(said: Any) -> Any:
        def lie(message: Message, reply: Message) -> Message:
            if message.metadata.dst_node_id not in lying_once:
                return reply
            lying_once.remove(message.metadata.dst_node_id)
            told.append(said())
            return Message(Error(2, f"<class 'HeadRefused'> went-back 99 3 {told[-1]}"), reply_to=message)

        return lie

    lying_once = {*grid._contexts}
    grid.lies = {node: lying(said) for node, said in zip(grid._contexts, lines, strict=False)}
    with Session.resume(state_dir, "run", identity_is_stable=True) as session:
        FieldfareStrategy(session).start(grid)
    assert len({*told}) == len(lines)
    with Ledger.open(state_dir.ledger) as ledger:
        assert ledger.run("run").state == "done"

"""Users are bound to the node that first claimed them, where nodes prove who they are; a node may hold so many."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typer.testing import CliRunner

from fieldfare.errors import BadInput, CheckpointError
from fieldfare_flower.messages import COHORT, USERS
from fieldfare_server.cli.application import assemble
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql.nodes import NodeRegister, key_digest
from fieldfare_server.run.presence import bindings as bindings_module
from fieldfare_server.run.presence.bindings import Bindings
from fieldfare_server.run.presence.roster import BOUND_ELSEWHERE, TOO_MANY_USERS
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.clock import FakeClock
from support.federation import TinyTask, home, plan
from support.liars import EVERYONE, claims, error
from support.refusals import coded
from support.timed_grid import TimedGrid


def key_of(node: int) -> bytes:
    return f"-----BEGIN PUBLIC KEY-----\nnode {node}\n".encode()


class Authenticated(TimedGrid):
    """A grid whose nodes show keys. `ids`: node -> the id under which it is known now."""

    def get_nodes(self) -> Any:
        return [SimpleNamespace(node_id=node, public_key=key_of(node)) for node in self.get_node_ids()]


class LockedNowAndThen(Authenticated):
    """The SuperLink fails whenever it is asked for keys for the first, third, ... time."""

    looks = 0

    def get_nodes(self) -> Any:
        self.looks += 1
        if self.looks % 2:
            request = httpx.Request("POST", "https://superlink/v1/runtime/get-nodes")
            httpx.Response(500, request=request).raise_for_status()
        return super().get_nodes()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock(1.7e9)
    clock.install(monkeypatch)
    monkeypatch.setenv("FIELDFARE_NODE_AUTH", "required")
    return clock


FEW = {"run__cohort": 4, "run__min_reports": 2}


def train(state: StateDirectory, grid: TimedGrid, **changes: Any) -> Session:
    with Session.begin(state, plan(**changes), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(grid)
    assert session.next_round == 6
    return session


def test_a_superlink_that_fails_for_a_moment_ends_no_run_and_leaves_no_node_unnamed(
    tmp_path: Path, clock: FakeClock
) -> None:
    session = train(home(tmp_path), LockedNowAndThen(3, clock))
    roster = session.cohorts.roster
    assert set(roster._node_names) == {2, 3, 4}
    assert roster.bindings is not None
    assert (roster.bindings._node >= 0).all()


def trained_by(grid: TimedGrid, node: int) -> set[int]:
    """The users whom `node` was asked to train."""
    asked = [m.content.array_records[COHORT][USERS].numpy() for m in grid.seen if m.metadata.dst_node_id == node]
    return {int(user) for users in asked for user in users}


def hosted(node: int) -> set[int]:
    """The users of node 2, 3 or 4 of three."""
    return set(TinyTask().users().partition(node - 2, 3).pseudonyms.tolist())


def away(node: int) -> Callable[[int, float], bool]:
    return lambda each, at: each == node


def test_a_user_stays_with_the_first_node_in_later_runs_and_other_claims_are_counted(
    tmp_path: Path, clock: FakeClock
) -> None:
    state = home(tmp_path)
    first = Authenticated(3, clock, away=away(4))
    train(state, first, **FEW)
    # Later the third node claims everyone, before the others answer.
    thief = Authenticated(3, clock, query_lies={4: claims(EVERYONE)}, takes=lambda node, kind: 0.1 if node == 4 else 2)
    session = train(state, thief, **FEW)
    bound = hosted(2) | hosted(3)
    assert trained_by(first, 2) <= hosted(2)
    assert trained_by(first, 3) <= hosted(3)
    assert not trained_by(thief, 4) & bound
    assert session.cohorts.roster.refused[BOUND_ELSEWHERE] == len(bound)
    with Ledger.open(state.ledger) as ledger:
        rows = ledger.rounds(session.account.id).items
        assert sum(row.rejects.get(BOUND_ELSEWHERE, 0) for row in rows) == len(bound)
        assert verify(ledger, state.root, recompute=recharge, held=[ledger.head()]).ok


def test_a_user_is_not_taken_over_while_their_node_is_offline(tmp_path: Path, clock: FakeClock) -> None:
    state = home(tmp_path)
    train(state, Authenticated(3, clock), **FEW)
    gone = Authenticated(3, clock, query_lies={4: claims(EVERYONE)}, away=away(3))
    session = train(state, gone, **FEW)
    assert session.cohorts.roster.available().size == len(hosted(2) | hosted(4))
    assert trained_by(gone, 4) <= hosted(4)


def test_a_node_with_a_new_id_keeps_its_users(tmp_path: Path, clock: FakeClock) -> None:
    """A SuperLink that lost its state gives the same key another id."""

    class Renumbered(Authenticated):
        def get_nodes(self) -> Any:
            return [SimpleNamespace(node_id=node, public_key=key_of(node - 10)) for node in self.get_node_ids()]

    state = home(tmp_path)
    train(state, Authenticated(3, clock))
    grid = Renumbered(3, clock)
    grid._contexts = {node + 10: context for node, context in grid._contexts.items()}
    session = train(state, grid)
    assert trained_by(grid, 12) | trained_by(grid, 13) | trained_by(grid, 14)
    assert session.cohorts.roster.refused.total() == 0


def test_a_thief_who_was_first_loses_the_users_when_it_fails_or_is_released(tmp_path: Path, clock: FakeClock) -> None:
    state = home(tmp_path)

    def robbed() -> Authenticated:
        first = {4: 0.01}
        return Authenticated(
            3, clock, {4: error(2)}, {4: claims(EVERYONE)}, takes=lambda node, kind: first.get(node, 1.0)
        )

    grid = robbed()
    train(state, grid, **FEW)
    assert trained_by(grid, 4) & hosted(2)
    assert trained_by(grid, 2), "after the quarantine the honest nodes answer for their users"
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        ledger.release_node(key_digest(key_of(4)), "thief", actor="operator")
    train(state, Authenticated(3, clock, away=away(4)), **FEW)
    released = robbed()
    train(state, released, **FEW)
    assert not trained_by(released, 4) & (hosted(2) | hosted(3))


def test_a_node_that_claims_more_than_it_was_registered_for_is_refused_whole(tmp_path: Path, clock: FakeClock) -> None:
    state = home(tmp_path)
    most = {2: len(hosted(2)), 3: len(hosted(3)), 4: len(hosted(4)) - 1}
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        for node, users in most.items():
            ledger.admit_node(key_digest(key_of(node)), f"node-{node}", users, actor="operator")
    grid = Authenticated(3, clock)
    session = train(state, grid, **FEW)
    assert trained_by(grid, 2)
    assert not trained_by(grid, 4)
    assert session.cohorts.roster.refused[TOO_MANY_USERS] >= 1
    assert session.account.users == most[2] + most[3], "users that are refused are not registered"
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        ledger.admit_node(key_digest(key_of(4)), "node-4", most[4] + 1, actor="operator")
    more = Authenticated(3, clock)
    train(state, more, **FEW)
    assert trained_by(more, 4), "the newest statement holds"


def test_without_authentication_no_binding_outlasts_a_session(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FIELDFARE_NODE_AUTH")
    state = home(tmp_path)
    train(state, Authenticated(2, clock))
    train(state, Authenticated(3, clock))
    assert not list(state.root.glob(".bindings*"))


# -- the file, and what operators say ----------------------------------------------------------------------------------


def register_of(tmp_path: Path) -> tuple[StateDirectory, Ledger, NodeRegister]:
    state = home(tmp_path)
    ledger = Ledger.open(state.ledger, head_file=state.head_file)
    return state, ledger, ledger.node_register()


def test_bindings_of_two_runs_at_once_are_both_kept(tmp_path: Path) -> None:
    state, ledger, register = register_of(tmp_path)
    with ledger:
        a, b = (Bindings(state.root, "people", register) for _ in range(2))
        assert a.bind(np.arange(4), "a" * 64).all()
        assert b.bind(np.arange(2, 8), "b" * 64).all()
        a.save()
        b.save()
        again = Bindings(state.root, "people", register)
        assert again.bind(np.arange(8), "a" * 64).tolist() == [True] * 2 + [False] * 6
        assert Bindings(state.root, "others", register).bind(np.arange(8), "a" * 64).all()


def test_a_run_that_saves_while_another_does_loses_no_binding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, ledger, register = register_of(tmp_path)
    with ledger:
        a, b = (Bindings(state.root, "people", register) for _ in range(2))
        a.bind(np.arange(4), "a" * 64)
        b.bind(np.arange(4, 8), "b" * 64)
        other, replace = threading.Thread(target=b.save), bindings_module.replace_file

        def between(path: Path, content: bytes) -> None:
            """b saves after a has read, and before a writes; or waits until a has written."""
            if other.ident is None:
                other.start()
                other.join(0.3)
            replace(path, content)

        monkeypatch.setattr(bindings_module, "replace_file", between)
        a.save()
        other.join(20)
        again = Bindings(state.root, "people", register)
        assert again.bind(np.arange(8), "a" * 64).tolist() == [True] * 4 + [False] * 4


def test_a_release_counts_once_and_also_in_a_run_under_way(tmp_path: Path) -> None:
    state, ledger, register = register_of(tmp_path)
    with ledger:
        bindings = Bindings(state.root, "people", register)
        bindings.bind(np.arange(4), "a" * 64)
        assert not bindings.bind(np.arange(4), "b" * 64).any()
        ledger.release_node("a" * 64, "a", actor="operator")
        assert bindings.bind(np.arange(4), "b" * 64).all()
        bindings.save()
        assert not Bindings(state.root, "people", register).bind(np.arange(4), "a" * 64).any()


def test_a_damaged_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    state, ledger, register = register_of(tmp_path)
    with ledger:
        (state.root / ".bindings-people.safetensors").write_bytes(b"torn")
        with pytest.raises(CheckpointError, check=coded("checkpoint-error", "bindings")):
            Bindings(state.root, "people", register)


@pytest.mark.parametrize(("key", "most"), [("a" * 63, 5), ("g" * 64, 5), ("a" * 64, 0), ("a" * 64, 10**9)])
def test_nonsense_of_operators_is_refused(key: str, most: int, tmp_path: Path) -> None:
    _, ledger, _ = register_of(tmp_path)
    with ledger, pytest.raises(BadInput):
        ledger.admit_node(key, "node", most, actor="operator")


def test_the_commands_name_a_node_as_the_grid_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`release`, and `register --most-users`: by the digest of the key that a SuperNode shows."""
    state = home(tmp_path)
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    path = tmp_path / "clinic.pub"
    path.write_bytes(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    shown = key_digest(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    monkeypatch.setattr("fieldfare_server.cli.nodes.register_node", lambda *arguments: "registered")
    (tmp_path / "ca.crt").write_text("")
    where = ["--home", str(state.root), "--ledger", state.ledger]
    given = ["--most-users", "12", "--root-certificates", str(tmp_path / "ca.crt")]
    done = CliRunner().invoke(assemble("nodes"), ["nodes", "register", str(path), *given, *where])
    assert done.exit_code == 0, done.output
    assert "clinic: registered, for at most 12 users" in done.output
    done = CliRunner().invoke(assemble("nodes"), ["nodes", "release", str(path), *where])
    assert done.exit_code == 0, done.output
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        terms = ledger.node_register().terms(shown)
        assert (terms.most_users, terms.releases) == (12, 1)
        assert verify(ledger, state.root, recompute=recharge, held=[ledger.head()]).ok
    done = CliRunner().invoke(assemble("nodes"), ["nodes", "release", str(tmp_path / "ca.crt"), *where])
    assert done.exit_code == 2

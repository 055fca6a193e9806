"""Users: blobs, look-up, participation state, registration."""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event

from fieldfare.errors import BadInput
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger, Outcome
from fieldfare_server.ledger.sql import blobs
from fieldfare_server.ledger.sql.users import SortedIndex, pseudonyms, salted
from support.ledgers import commit, digest, gaussian, start
from support.refusals import coded


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, create=True) as opened:
        opened.create_population("people", 4.0, 1e-6, actor="officer")
        yield opened


@given(st.sets(st.integers(0, 2**32 - 1) | st.integers(0, 300), max_size=200))
def test_blobs_give_back_every_set(users: set[int]) -> None:
    assert blobs.decode(
        blobs.encode(np.array(sorted(users, reverse=True), dtype=np.int64)), len(users)
    ).tolist() == sorted(users)


@pytest.mark.parametrize("users", [[1, 1], [-1], [2**32], [0.5], [[1, 2]]])
def test_blobs_refuse_what_is_no_set_of_users(users: list[object]) -> None:
    with pytest.raises(ValueError, match=r"ind(ex|ices)"):
        blobs.encode(np.array(users))


@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=50), st.data())
def test_damaged_blobs_are_refused_or_give_a_set_of_the_same_size(users: set[int], data: st.DataObject) -> None:
    blob = bytearray(blobs.encode(np.array(sorted(users))))
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = blobs.decode(bytes(blob), len(users))
    except ValueError:
        return
    assert found.size == len(users)
    assert (np.diff(found) > 0).all()


def test_blobs_do_not_inflate_without_end() -> None:
    bomb = b"\x01" + zlib.compress(bytes(10**7))
    with pytest.raises(ValueError, match="does not hold 3"):
        blobs.decode(bomb, 3)


def test_a_participation_takes_few_bytes() -> None:
    rng = np.random.default_rng(0)
    assert len(blobs.encode(rng.choice(1_000_000, 1000, replace=False))) < 2.2 * 1000


def test_sorted_index_keeps_first_values() -> None:
    index = SortedIndex()
    assert index.get(np.array([3], dtype=np.uint64)).tolist() == [-1]
    index.add(np.array([9, 3, 9], dtype=np.uint64), np.array([0, 1, 2]))
    index.add(np.array([3, 2**64 - 1], dtype=np.uint64), np.array([7, 8]))
    assert index.get(np.array([3, 9, 2**64 - 1, 5], dtype=np.uint64)).tolist() == [1, 0, 8, -1]
    assert len(index) == 3


def test_salted_is_keyed_blake2b() -> None:
    got = salted(np.array([5, 2**64 - 1], dtype=np.uint64), b"salt" * 4)
    for value, user in zip(got.tolist(), (5, 2**64 - 1), strict=True):
        keyed = hashlib.blake2b(user.to_bytes(8, "little"), digest_size=8, key=b"salt" * 4, person=b"fieldfare.ledger")
        assert value == int.from_bytes(keyed.digest(), "little")


@pytest.mark.parametrize("ids", [[-1], [1.5], [[1]], ["a"]])
def test_only_unsigned_integers_are_user_ids(ids: list[object]) -> None:
    with pytest.raises(ValueError, match="user ids"):
        pseudonyms(np.array(ids))


def test_indices_are_stable_across_calls_runs_and_processes(ledger: Ledger, ledger_url: str) -> None:
    first = start(ledger, 0.3)
    assert first.register_users(np.array([30, 10, 20, 10], dtype=np.uint64)).tolist() == [0, 1, 2, 1]
    with Ledger.open(ledger_url) as elsewhere:
        second = start(elsewhere, 0.3)
        assert second.register_users(np.array([20, 40], dtype=np.uint64)).tolist() == [2, 3]
        assert first.register_users(np.array([50, 40, 30], dtype=np.uint64)).tolist() == [4, 3, 0]
        assert first.register_users(np.array([50, 40, 30], dtype=np.uint64)).tolist() == [4, 3, 0]
        assert second.register_users(np.array([50], dtype=np.uint64)).tolist() == [4]
    assert ledger.population("people").users == 5
    assert verify(ledger).ok


def test_known_users_cost_no_write(ledger: Ledger) -> None:
    run = start(ledger)
    run.register_users(np.arange(50, dtype=np.uint64))
    before = ledger.head()
    run.register_users(np.arange(49, -1, -1, dtype=np.uint64))
    assert ledger.head() == before


def test_participation_in_another_run_does_not_count(ledger: Ledger) -> None:
    first, second = start(ledger, 0.3), start(ledger, 0.3)
    for run in (first, second):
        run.register_users(np.arange(3, dtype=np.uint64))
    commit(first, [0, 1], 0.1)
    assert second.patterns([0, 1]) == [(), ()]
    assert first.patterns([0, 1]) == [(0,), (0,)]


def test_unknown_indices_are_refused(ledger: Ledger) -> None:
    run = start(ledger)
    run.register_users(np.arange(3, dtype=np.uint64))
    for cohort in ([3], [-1], [0.5]):
        with pytest.raises(BadInput, check=coded("out-of-range", "user indices")):
            run.open_round(cohort)


def test_participants_come_from_the_cohort_and_only_once(ledger: Ledger) -> None:
    run = start(ledger)
    run.register_users(np.arange(4, dtype=np.uint64))
    opened = run.open_round([0, 1, 2])
    with pytest.raises(BadInput, check=coded("differs", "participants of round")):
        run.commit_round(opened, Outcome([3], gaussian(0.1)), digest("x"))
    with pytest.raises(ValueError, match="repeated"):
        run.commit_round(opened, Outcome([1, 1], gaussian(0.1)), digest("x"))
    assert run.patterns([0, 1, 2, 3]) == [(), (), (), ()]


def test_no_pseudonym_is_in_the_file(tmp_path: Path) -> None:
    ids = np.random.default_rng(1).integers(2**63, size=200, dtype=np.uint64)
    path = tmp_path / "ledger.sqlite3"
    with Ledger.open(str(path), create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        start(ledger).register_users(ids)
    content = path.read_bytes()
    assert not any(int(i).to_bytes(8, order) in content for i in ids for order in ("little", "big"))  # type: ignore[arg-type]
    assert not any(str(int(i)).encode() in content for i in ids)


def test_statements_a_round_do_not_grow_with_rounds_or_runs(tmp_path: Path) -> None:
    """O(1) a round: the same number of database steps in the first round and after 30 runs and 60 rounds."""
    with Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True) as ledger:
        ledger.create_population("people", 400.0, 1e-6, actor="officer")
        with sqlite3.connect(tmp_path / "ledger.sqlite3") as link:
            assert link.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        for _ in range(30):
            run = start(ledger, 0.3)
            run.register_users(np.arange(20, dtype=np.uint64))
            for _ in range(2):
                commit(run, [1, 2, 3], 0.3)
            run.finish("stopped")
        counted: list[str] = []
        event.listen(ledger.database.engine, "before_cursor_execute", lambda *a: counted.append(a[2]))
        run = start(ledger, 0.3, rounds=4)
        run.register_users(np.arange(20, dtype=np.uint64))
        sizes = []
        for _ in range(4):
            counted.clear()
            commit(run, [1, 2, 3], 0.3)
            sizes.append(len(counted))
        assert sizes[0] == sizes[1] == sizes[2] == sizes[3]
        assert sizes[0] < 40

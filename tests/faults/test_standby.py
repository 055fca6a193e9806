"""The primary of a real PostgreSQL is killed under writers, and its synchronous standby is promoted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import LedgerError
from fieldfare_server.ledger import Ledger
from support.ledgers import commit, digest, start
from support.postgres import QUICK, Cluster, find_programs, missing

pytestmark = [pytest.mark.slow, pytest.mark.postgres]


@pytest.fixture
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary that acknowledges a commit once its standby has it, and that standby."""
    programs = find_programs()
    if programs is None:
        missing()
    assert programs is not None
    primary = Cluster(programs)
    standby = Cluster(programs, QUICK, primary)
    primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.execute("SELECT pg_reload_conf()")
    synchronous = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
    end = time.monotonic() + 60
    while not primary.execute(synchronous):
        assert time.monotonic() < end, "the standby never caught up"
        time.sleep(0.1)
    yield primary, standby
    for cluster in (standby, primary):
        with suppress(RuntimeError):  # the primary is dead
            cluster.remove()


def test_a_promoted_standby_has_every_charge_that_was_acknowledged(
    pair: tuple[Cluster, Cluster], tmp_path: Path
) -> None:
    primary, standby = pair
    url = primary.new_database()
    told: list[str] = []
    enough = threading.Event()

    def charge(ledger: Ledger, trainer: int) -> None:
        with suppress(LedgerError):
            for number in range(10_000):
                key = f"{trainer}-{number}"
                ledger.reserve_charge("people", key, Foreign(mu=0.001), what="x", why="y", actor=f"trainer {trainer}")
                told.append(key)
                if len(told) > 20:
                    enough.set()

    head = tmp_path / "ledger.head"
    with Ledger.open(url, create=True, head_file=head, coordinator=True, patience=1.0) as ledger:
        ledger.create_population("people", 8.0, 1e-6, actor="officer")
        key = digest("a key")
        run = start(ledger, 0.8, key_commitment=key)
        run.register_users([1, 2])
        commit(run, [0, 1], 0.4)
        writers = [threading.Thread(target=charge, args=(ledger, trainer)) for trainer in range(2)]
        for writer in writers:
            writer.start()
        assert enough.wait(60)
        primary.stop("immediate")
        for writer in writers:
            writer.join()
        with pytest.raises(LedgerError):
            commit(run, [0, 1], 0.5)
    standby.promote()
    after = standby.url(url.rpartition("/")[2].partition("?")[0])
    with Ledger.open(after, head_file=head, coordinator=True, lease_seconds=1.0) as ledger:
        there = {each.key for each in ledger.charges("people")}
        assert set(told) <= there
        assert len(there - set(told)) <= 2, "what was under way, of each writer"
        assert ledger.proof.advance().whole
        again = ledger.resume_run(run.id, key_commitment=key, holder="another", wait=40.0)
        opened = again.open_round_pending()
        assert again.next_round == 1
        if opened is not None:
            again.void_round(opened, "the primary died")
        commit(again, [0, 1], 0.5)
        spent = ledger.population("people").spent.mu_squared
        assert spent == pytest.approx(0.25)

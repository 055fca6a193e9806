"""The benchmark's large ledger is one that the ledger itself finds nothing wrong with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger


def test_copied_runs_verify_and_the_ledger_goes_on(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[3] / "benchmarks"), *sys.path])
    import large_ledger

    large_ledger.fill(ledger_url, runs=4, rounds=3)
    with Ledger.open(ledger_url) as ledger:
        report = verify(ledger)
        assert report.ok, report.fault
        assert (report.checked["runs"], report.checked["rounds"]) == (4, 12)
        run = large_ledger.start(ledger, "live", 2)
        large_ledger.commit(run)
        run.finish("stopped")
        after = verify(ledger)
        assert after.ok, after.fault
        # The guards are back.
        with pytest.raises(Exception, match="append-only"), ledger.database.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM audit")

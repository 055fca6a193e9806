"""Where presence is secret, no table, log row or checkpoint says who took part, how many, or what a coin said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql import blobs, models
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan

NOBODY = blobs.encode([])
SAMPLERS: dict[str, dict[str, Any]] = {
    "poisson": {"participation": {"scheme": "poisson", "rate": 0.5}, "mechanism": {"kind": "independent"}},
    "random allocation": {
        "participation": {"scheme": "random-allocation", "bins": 3},
        "mechanism": {"kind": "independent"},
    },
    "not amplified": {"participation": {"scheme": "poisson", "rate": 0.5}, "mechanism": {"kind": "nu", "nu": 0.1}},
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_nothing_says_who_took_part(sampler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the run lives and after its end: the assignment alone makes an epsilon of 4 one of 17."""
    secret = {"privacy__adjacency": "add_remove", "run__min_reports": None, "run__noise_seed": None}
    state_dir = home(tmp_path, adjacency="add_remove")
    written: list[dict[str, Any]] = []
    write = RunFiles.write

    def watched(self: RunFiles, round: int, tensors: Any, meta: Any) -> str:
        written.append(json.loads(json.dumps(meta)))
        return write(self, round, tensors, meta)

    monkeypatch.setattr(RunFiles, "write", watched)
    with Session.begin(state_dir, plan(**secret, **SAMPLERS[sampler]), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(3))
    with Ledger.open(state_dir.ledger) as ledger, ledger.read() as connection:
        rounds = connection.execute(select(models.rounds)).mappings().all()
        kept = connection.execute(select(models.participations)).mappings().all()
        log = [json.loads(body) for body in connection.execute(select(models.journal.c.body)).scalars()]
    assert len(rounds) == len(kept) == session.plan.run.rounds
    assert {(r["cohort_size"], r["participants"], r["reports"], r["rejects"]) for r in rounds} == {(0, 0, 0, "{}")}
    assert {(row["count"], row["users"]) for row in kept} == {(0, NOBODY)}
    opened = [body for body in log if "cohort" in body]
    assert len({(body["cohort"], body["cohort_size"]) for body in opened}) == 1
    committed = [body for body in log if "participants" in body]
    assert len({(b["participants"], b["participant_count"], b["reports"]) for b in committed}) == 1
    assert written
    assert all(meta["participants"] == [] and meta["reports"] == 0 and meta["rejects"] == {} for meta in written)

"""Odometers of a population that had none: what its ended runs cost each user, from the recorded participation."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.individual import Units
from fieldfare.errors import FieldfareError
from fieldfare_server.files.strategies import StoredStrategy
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql import blobs, models, odometer_tables
from fieldfare_server.ledger.sql.rows import population_row
from fieldfare_server.ledger.state import odometers
from fieldfare_server.ledger.states import ACTIVE


def recomputed(ledger: Ledger, root: Path, name: str) -> tuple[dict[str, list[Units]], dict[str, str]]:
    """Return ({run: what each round cost its participants}, {run: why it stays charged to all users alike}).

    Computed as `verify` computes it, by the strategy that each run applied. Nothing is written.

    Args:
        root: the state directory, where strategies lie.
    """
    charges: dict[str, list[Units]] = {}
    left: dict[str, str] = {}
    c = models.runs.c
    with ledger.read() as connection:
        population = population_row(connection, name)
        ours = (c.population_id == population.id, c.accounting == odometers.WORST_CASE, c.next_round > 0)
        for run in connection.execute(select(models.runs).where(*ours).order_by(c.seq)).all():
            if run.state in ACTIVE:
                left[run.id] = "it is under way"
                continue
            if odometer_tables.is_whole(connection, run.seq):
                left[run.id] = "it was ended charged whole: more may have been released than its rounds"
                continue
            plan = ledger.run(run.id).plan
            if population.simulated and not plan.get("run", {}).get("task"):
                # Of a strategy in a ServerApp. Which nodes it had is not recorded.
                left[run.id] = "its users may be nodes of Flower's simulation, whose names another has in the next run"
                continue
            try:
                planned = PrivacyLoss.from_json(run.planned)
                cost = StoredStrategy(root, run.id, run.strategy, planned).cost(plan)
            except FieldfareError as error:
                left[run.id] = str(error)
                continue
            if not cost.single:
                left[run.id] = "its loss is not that of a Gaussian mechanism"
                continue
            p = models.participations.c
            rounds = (
                select(p.index.label("number"), p.count.label("size"), p.users)
                .where(p.run_seq == run.seq)
                .order_by(p.index)
            )
            charge, units = cost.realised(), list[Units]()
            for part in connection.execute(rounds):
                users = blobs.decode(part.users, part.size)
                units.append(cost.increments(charge.growth(part.number, users)))
                charge.add(part.number, users)
            charges[run.id] = units
    return charges, left

"""What must hold of everything that left the process, after any crashes."""

from __future__ import annotations

from fieldfare.accounting.filter import Price
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger
from support.driver import ROUNDS, RUN, Place, charge


def check(place: Place, *, ended: bool) -> None:
    """Invariants I1 and I2 on the transcript and the ledger that is there now."""
    lines = place.lines()
    with Ledger.open(place.url, head_file=place.root / "head.json") as ledger:
        rounds = []
        if any(run.id == RUN for run in ledger.runs().items):
            rounds = list(ledger.rounds(RUN).items)
            run = ledger.run(RUN)
        attempts = {(row.index, row.attempt) for row in rounds}
        committed = {row.index: row for row in rounds if row.state == "committed"}
        for line in lines:
            if line["what"] == "sent":
                assert (line["round"], line["attempt"]) in attempts, "sent before it was durable"
        released: dict[int, list[float]] = {}
        for line in (line for line in lines if line["what"] == "released"):
            row = line["noise_row"]
            assert released.setdefault(row, line["params"]) == line["params"], "a noise row served two sums"
            assert line["round"] in committed, "seen before its charge was durable"
            spent = committed[line["round"]].spent
            assert spent is not None
            assert spent.mu_squared >= line["mu_squared"], "charged less than was released"
            assert run.spent.mu_squared >= line["mu_squared"], "charged less than was released"
        rows = [row.noise_row for row in rounds if row.state == "committed"]
        assert rows == sorted(set(rows)) == list(range(len(rows))), "noise rows are used once, in order"
        report = verify(ledger, place.root, recompute=charge)
        assert report.ok, str(report.fault)
        if ended:
            assert run.state == "done"
            assert len(committed) == ROUNDS
            population = ledger.population("people")
            assert population.committed == population.spent == Price(run.spent.mu_squared, 0.0)
            assert sorted(released) == list(range(ROUNDS)), "what was committed is released in the end"

"""What lying nodes cost the honest rest: attempts and seconds a run of 100 nodes takes with 0, 1, 10 and 30 % liars.

    python benchmarks/liars.py [--nodes 100] [--rounds 40] [--seeds 3] [--sort "any lie"] [--out benchmarks/results]

In process, on a clock that is set and not waited for. Each liar tells one of the lies of tests/support/liars.py, drawn
at random; every node hosts two users; honest nodes answer after half a second. Four federations: the liars draw from
all lies, or all of them tell the one that costs most of its sort (errors, silence, invented users). Void rounds are
attempts that released nothing and charged nothing; seconds are those of the clock, round timeout 60 s.
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fieldfare_server.run.rehearsal import Rehearsal
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.clock import FakeClock
from support.federation import plan
from support.liars import LIARS, Liar, federation

SHARES = (0.0, 0.01, 0.1, 0.3)
SORTS = {
    "any lie": [liar.name for liar in LIARS],
    "errors": ["an exception in every round"],
    "silence": ["no update"],
    "invented users, then errors": ["invents a thousand users, then errs"],
}
TASK = "support.liars:ManyUsers"


class Counted(Rehearsal):
    """Counts void rounds."""

    voids = 0

    def void_round(self, *arguments: Any, **keywords: Any) -> None:
        self.voids += 1


def measure(nodes: int, rounds: int, share: float, names: list[str], seed: int) -> dict[str, float]:
    """One run; raises what the run raises if it does not reach its end."""
    draw, clock = random.Random(seed), FakeClock(1.7e9)
    lies: dict[str, Liar] = {liar.name: liar for liar in LIARS}
    liars = {node + 2: lies[draw.choice(names)] for node in draw.sample(range(nodes), round(share * nodes))}
    changes = {
        "run__task": TASK,
        "run__rounds": rounds,
        "run__cohort": 40,
        "run__min_reports": 30,
        "run__round_timeout": 60.0,
        "participation": {"scheme": "min-separation", "separation": 1},
        "mechanism": {"kind": "independent"},
    }
    with pytest.MonkeyPatch.context() as patch:
        clock.install(patch)
        grid = federation(clock, nodes, liars, TASK)
        session = Session.rehearse(plan(**changes), noise=False)
        session.account = account = Counted()
        session = Session(session.plan, None, account, None, bytes(32))
        FieldfareStrategy(session).take_to_end(grid)
    asked = [node for _, node, kind in grid.asked if kind == "train"]
    honest = sum(node not in liars for node in asked)
    return {"voids": account.voids, "seconds": grid.now, "to liars": (len(asked) - honest) / max(1, len(asked))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sort", choices=tuple(SORTS), action="append", help="only liars of this sort; repeatable")
    parser.add_argument("--out", type=Path, help="write liars.md here")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    lines = ["| lies | liars | void rounds | the run is longer by | instructions that went to liars |"]
    lines.append("|---|--:|--:|--:|--:|")
    base = None
    for sort in asked.sort or SORTS:
        names = SORTS[sort]
        for share in SHARES if base is None else SHARES[1:]:
            runs = [measure(asked.nodes, asked.rounds, share, names, seed) for seed in range(asked.seeds)]
            voids, seconds, wasted = (statistics.median(r[k] for r in runs) for k in ("voids", "seconds", "to liars"))
            base = seconds if base is None else base
            worst = max(run["voids"] for run in runs)
            row = f"| {sort} | {share:.0%} | {voids:g} (worst {worst:g}) | {seconds - base:.0f} s | {wasted:.1%} |"
            lines.append(row)
            print(row, flush=True)
    if asked.out:
        only = "".join(f' --sort "{sort}"' for sort in asked.sort or ())
        command = (
            f"python benchmarks/liars.py --nodes {asked.nodes} --rounds {asked.rounds} --seeds {asked.seeds}{only}"
        )
        (asked.out / "liars.md").write_text(PAGE.format(table="\n".join(lines), command=command, **vars(asked)))


PAGE = """# What lying nodes cost the honest rest

{table}

{rounds} rounds of 40 users (30 reports needed) on {nodes} nodes of two users each, in process, by a clock that is set:
medians of {seeds} seeds. All runs reached their last round. Void rounds release nothing and charge nothing. A silent
liar that is asked costs its round the whole timeout (60 s), which is what makes silence the dearest lie; the rests
bound how often it is asked. Ten silent nodes of a hundred cost more than half of the rounds their timeout, because each
is asked five times before its quarantine.

`{command} --out benchmarks/results`
"""


if __name__ == "__main__":
    main()

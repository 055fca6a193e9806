"""One of several processes that race for the last of a budget: `python race.py URL GATE MU`."""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import BudgetRefused
from fieldfare_server.ledger import Ledger, NewRun, this_process


def main(url: str, gate: str, mu: str) -> None:
    with Ledger.open(url) as ledger:
        print("ready", flush=True)
        while not Path(gate).exists():
            time.sleep(0.001)
        for _ in range(8):
            try:
                run = ledger.start_run(
                    NewRun(
                        "{}",
                        "digest",
                        "people",
                        2,
                        PrivacyLoss(mu_squared=float(mu) ** 2, sampled=()),
                        noise_source="secure-box-muller",
                        key_commitment=secrets.token_hex(32),
                        trust_node_ids=False,
                    ),
                    holder=this_process(),
                )
                print("won", run.id, flush=True)
            except BudgetRefused:
                print("refused", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

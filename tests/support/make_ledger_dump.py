"""Writes `tests/server/ledger/data/ledger-VERSION.sql`: a filled ledger of this version, for later versions to read.

Run once when a version is released: `PYTHONPATH=shared:server:client:tests python tests/support/make_ledger_dump.py`.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql import migrate
from support.fill import fill


def main() -> None:
    target = Path(__file__).parents[1] / "server" / "ledger" / "data" / f"ledger-{migrate.latest()}.sql"
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "ledger.sqlite3"
        with Ledger.open(str(path), create=True) as ledger:
            fill(ledger)
        link = sqlite3.connect(path)
        target.write_text("\n".join(link.iterdump()) + "\n")
        link.close()
    print(target)


if __name__ == "__main__":
    main()

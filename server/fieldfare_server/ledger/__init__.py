"""The privacy budget of every population, durable: see `Ledger`."""

from __future__ import annotations

from fieldfare_server.ledger.chain import Head, HeadFile
from fieldfare_server.ledger.holders import this_process
from fieldfare_server.ledger.ledger import Ledger
from fieldfare_server.ledger.rules.runs import NewRun, new_run_id
from fieldfare_server.ledger.run_handle import RunHandle
from fieldfare_server.ledger.sql.rounds import OpenRound, Outcome

__all__ = [
    "Head",
    "HeadFile",
    "Ledger",
    "NewRun",
    "OpenRound",
    "Outcome",
    "RunHandle",
    "new_run_id",
    "this_process",
]

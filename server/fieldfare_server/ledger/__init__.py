"""The privacy budget of every population, durable: see `Ledger`."""

from __future__ import annotations

from fieldfare_server.ledger.chain import Head, HeadFile
from fieldfare_server.ledger.leases import this_process
from fieldfare_server.ledger.runs import OpenRound, RunHandle
from fieldfare_server.ledger.store import Ledger, new_run_id
from fieldfare_server.ledger.verify import Fault, Report, verify

__all__ = [
    "Fault",
    "Head",
    "HeadFile",
    "Ledger",
    "OpenRound",
    "Report",
    "RunHandle",
    "new_run_id",
    "this_process",
    "verify",
]

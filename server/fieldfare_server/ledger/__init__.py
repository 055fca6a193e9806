"""The privacy budget of every population, durable: see `Ledger`."""

from __future__ import annotations

from fieldfare_server.ledger.chain import Head, HeadFile
from fieldfare_server.ledger.leases import this_process
from fieldfare_server.ledger.ledger import Ledger, new_run_id
from fieldfare_server.ledger.run_handle import OpenRound, RunHandle

__all__ = [
    "Head",
    "HeadFile",
    "Ledger",
    "OpenRound",
    "RunHandle",
    "new_run_id",
    "this_process",
]

"""What the service needs from the ledger, as a protocol: reading, three requests, and token look-up. No model, no key.

All methods are synchronous and safe to call from several threads; a reader never holds a lock that a commit needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from fieldfare_server.api.schemas import (
    AuditRow,
    Histogram,
    Page,
    Population,
    Round,
    Run,
    RunDetail,
    Series,
    Verification,
)
from fieldfare_server.evidence.statement import Statement
from fieldfare_server.ledger.states import Scope

Request = Literal["stop", "pause", "resume"]


@dataclass(frozen=True)
class TokenRecord:
    """A token that is valid now. Its secret is not in it."""

    id: str
    name: str
    scopes: frozenset[Scope]
    expires_at: datetime | None


@dataclass(frozen=True)
class Totals:
    """Counters over the whole ledger, for /metrics."""

    rounds: dict[str, int]
    rejects: dict[str, int]
    runs: dict[str, int]
    failed_self_tests: int


class Store(Protocol):
    """The ledger as the API sees it. Unknown names raise `ProblemError` 404, bad cursors 400."""

    def ping(self) -> None:
        """Raises `LedgerError` unless the ledger answers and has this version's schema."""

    def head(self) -> int:
        """The newest audit id; 0 for an empty ledger."""

    def populations(self, cursor: str | None, limit: int) -> Page[Population]: ...
    def population(self, name: str) -> Population: ...
    def runs(self, cursor: str | None, limit: int, population: str | None) -> Page[Run]: ...
    def run(self, run_id: str) -> RunDetail: ...
    def rounds(self, run_id: str, cursor: str | None, limit: int) -> Page[Round]: ...
    def series(self, run_id: str, points: int) -> Series: ...
    def participation(self, run_id: str) -> Histogram: ...
    def audit(self, cursor: str | None, limit: int, run: str | None) -> Page[AuditRow]: ...
    def events(self, after: int, limit: int) -> Sequence[AuditRow]: ...
    def verify(self, restart: bool = False) -> Verification:
        """Checks some more rows, a bounded number, after those checked before; restart: from the first again."""

    def totals(self) -> Totals: ...
    def statement(self, run_id: str) -> Statement: ...
    def registry_entry(self, run_id: str) -> dict[str, Any]: ...
    def request(self, run_id: str, what: Request, actor: str) -> str:
        """Ask the coordinator; returns the run's state. Raises `ProblemError` 409 if the run has ended."""

    def token(self, secret: str) -> TokenRecord | None:
        """The token of this secret if it is neither revoked nor expired; compared in constant time."""

    def record_token_use(self, token_id: str, name: str, what: str) -> None:
        """Append an audit row for a token's use."""

    def close(self) -> None: ...

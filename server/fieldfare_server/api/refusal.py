"""What the service refuses, as RFC 9457 problem details: one shape, whoever carries the answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict, Field

from fieldfare.errors import BadInput, BudgetRefused, FieldfareError, LedgerError, Refused
from fieldfare_server.ledger.sql.proof import Disproved

_STATUS: tuple[tuple[type[FieldfareError], int, str], ...] = (
    (BadInput, 422, "invalid-request"),
    (BudgetRefused, 409, "budget-refused"),
    (Disproved, 409, "ledger-disproved"),
    (LedgerError, 503, "ledger-unavailable"),
    (FieldfareError, 500, "refused"),
)


class Problem(BaseModel):
    """RFC 9457. `type` names the kind of problem; `nearest` is the closest allowed alternative."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:fieldfare:problem:not-found"], description="names the kind of problem")
    title: str = Field(examples=["Not found"], description="the kind in words")
    status: int = Field(examples=[404], description="the HTTP status")
    detail: str | None = Field(
        default=None,
        examples=["population 'trains': there is no such population."],
        description="what was refused, and why",
    )
    instance: str | None = Field(
        default=None, examples=["/v1/populations/trains"], description="the path that was asked for"
    )
    nearest: str | None = Field(
        default=None, examples=["aircraft"], description="the nearest thing that would be allowed"
    )
    code: str | None = Field(
        default=None, examples=["budget-refused"], description="which refusal it is: docs/errors.md lists them"
    )


class ProblemError(Exception):
    """Code below a route raises this to answer with a problem."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        nearest: str = "",
        headers: dict[str, str] | None = None,
        code: str | None = None,
    ) -> None:
        self.status, self.kind, self.detail, self.nearest, self.code = status, kind, detail, nearest, code
        self.headers = headers or {}
        super().__init__(detail)


def described(error: ProblemError | FieldfareError, instance: str) -> Problem:
    """Return the problem that `error`, raised while `instance` was answered, is told as. No internal is shown."""
    if isinstance(error, ProblemError):
        return problem_of(error.status, error.kind, error.detail, instance, error.nearest, error.code)
    status, kind = next((status, kind) for refused, status, kind in _STATUS if isinstance(error, refused))
    if isinstance(error, Refused):
        return problem_of(status, kind, f"{error.what}: {error.why}", instance, error.nearest, error.code)
    return problem_of(status, kind, None, instance, code=error.code)


def problem_of(
    status: int, kind: str, detail: str | None, instance: str | None, nearest: str = "", code: str | None = None
) -> Problem:
    """Return a problem. kind: the last part of its type URN; the title is made from it."""
    return Problem(
        type=f"urn:fieldfare:problem:{kind}",
        title=kind.replace("-", " ").capitalize(),
        status=status,
        detail=detail,
        instance=instance,
        nearest=nearest or None,
        code=code,
    )


def kind_of(status: int) -> str:
    """Return the problem kind for a bare HTTP status."""
    try:
        return HTTPStatus(status).phrase.lower().replace(" ", "-").replace("'", "")
    except ValueError:
        return "error"


@contextmanager
def _told_as(status: int, kind: str) -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        raise ProblemError(status, kind, f"{error.what}: {error.why}", nearest=error.nearest, code=error.code) from None


# Inside, what the ledger does not know is told as a 404; and what it refuses as a 409.
known = partial(_told_as, 404, "not-found")
allowed = partial(_told_as, 409, "request-refused")

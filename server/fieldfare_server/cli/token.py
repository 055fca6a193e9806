"""`fieldfare token`: create, list and revoke the bearer tokens of the budget API."""

from __future__ import annotations

import time
from typing import Annotated, cast

import typer

from fieldfare_server.cli.administer import actor, on_ledger
from fieldfare_server.cli.command import CommandResult
from fieldfare_server.cli.output import out, print_table
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.states import Scope

token = typer.Typer(help="Create, list or revoke API tokens.", no_args_is_help=True)


@token.command()
@on_ledger
def create(
    opened: Ledger,
    name: Annotated[str, typer.Argument(help="its owner or its purpose")],
    scope: Annotated[list[str] | None, typer.Option(help="read (default), charge or admin; repeatable")] = None,
    days: Annotated[float | None, typer.Option(min=0.001, help="until it expires; default: never")] = None,
    population: Annotated[
        list[str] | None, typer.Option(help="a population that it is for; repeatable; default: all")
    ] = None,
) -> CommandResult:
    """Create a token. Its secret is shown once, now, and stored nowhere."""
    expires = None if days is None else time.time() + days * 86_400
    secret, view = opened.create_token(
        name,
        cast("tuple[Scope, ...]", tuple(scope or ("read",))),
        actor=actor(),
        expires_at=expires,
        populations=tuple(population) if population else None,
    )

    def tell() -> None:
        out.print(f"Token {view.id} ({', '.join(view.scopes)}). Keep the secret; it is not shown again:")
        out.print(secret, markup=False, soft_wrap=True)

    return CommandResult({"id": view.id, "name": view.name, "scopes": view.scopes, "token": secret}, tell)


@token.command(name="list")
@on_ledger
def list_(opened: Ledger) -> CommandResult:
    """List all tokens, without their secrets."""
    views = opened.tokens()
    now = time.time()

    def state(expires_at: float | None, revoked_at: float | None) -> str:
        if revoked_at is not None:
            return "revoked"
        return "expired" if expires_at is not None and expires_at <= now else "valid"

    rows = [
        (v.id, v.name, ", ".join(v.scopes), ", ".join(v.populations or ("all",)), state(v.expires_at, v.revoked_at))
        for v in views
    ]
    columns = ("id", "name", "scopes", "populations", "state")
    return CommandResult(views, lambda: print_table("API tokens", columns, rows))


@token.command()
@on_ledger
def revoke(
    opened: Ledger,
    token: Annotated[str, typer.Argument(help="the token's id, or its name where only one valid token has it")],
) -> CommandResult:
    """Revoke a token, from now on and for good."""
    view = opened.revoke_token(token, actor=actor())
    return CommandResult(view, lambda: out.print(f"Token {view.id} revoked."))

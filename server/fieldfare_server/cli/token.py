"""`fieldfare token`: make and revoke the bearer tokens of the budget API."""

from __future__ import annotations

import time
from typing import Annotated, get_args

import typer

from fieldfare.errors import BadInput
from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import out, print_json, print_table, refusals
from fieldfare_server.cli.population import actor
from fieldfare_server.home import Home
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import Scope

token = typer.Typer(help="Create, list or revoke API tokens.", no_args_is_help=True)


@token.command()
def create(
    name: Annotated[str, typer.Argument(help="whose it is, or what for")],
    scope: Annotated[list[str] | None, typer.Option(help="read (default) or admin; repeatable")] = None,
    days: Annotated[float | None, typer.Option(min=0.001, help="until it expires; default: never")] = None,
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """Make a token. Its secret is shown once, now, and stored nowhere."""
    with refusals(json_):
        where = Home.of(home, ledger)
        expires = None if days is None else time.time() + days * 86_400
        with Ledger.open(where.ledger, head_file=where.head_file) as opened:
            secret, view = opened.create_token(name, _scopes(scope or ["read"]), actor=actor(), expires_at=expires)
        if json_:
            print_json({"id": view.id, "name": view.name, "scopes": view.scopes, "token": secret})
        else:
            out.print(f"Token {view.id} ({', '.join(view.scopes)}). Keep the secret; it is not shown again:")
            out.print(secret, markup=False, soft_wrap=True)


def _scopes(given: list[str]) -> tuple[Scope, ...]:
    allowed = get_args(Scope)
    for scope in given:
        if scope not in allowed:
            raise BadInput(f"--scope {scope!r}", "there is no such scope.", ", ".join(allowed))
    return tuple(scope for scope in allowed if scope in given)


@token.command(name="list")
def list_(home: HomeOption = None, ledger: LedgerOption = None, json_: JsonOption = False) -> None:
    """All tokens, without their secrets."""
    with refusals(json_):
        with Ledger.open(Home.of(home, ledger).ledger) as opened:
            views = opened.tokens()
        if json_:
            print_json([view.model_dump(mode="json") for view in views])
        else:
            rows = [(v.id, v.name, ", ".join(v.scopes), "revoked" if v.revoked_at else "valid") for v in views]
            print_table("API tokens", ("id", "name", "scopes", "state"), rows)


@token.command()
def revoke(
    token_id: Annotated[str, typer.Argument(help="the token's id, as `token list` shows it")],
    home: HomeOption = None,
    ledger: LedgerOption = None,
    json_: JsonOption = False,
) -> None:
    """Make a token useless from now on."""
    with refusals(json_):
        where = Home.of(home, ledger)
        with Ledger.open(where.ledger, head_file=where.head_file) as opened:
            view = opened.revoke_token(token_id, actor=actor())
        if json_:
            print_json(view.model_dump(mode="json"))
        else:
            out.print(f"Token {view.id} revoked.")

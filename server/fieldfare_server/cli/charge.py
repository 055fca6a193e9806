"""`fieldfare charge`: charge what another trainer spends to a population's budget."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import Conflict
from fieldfare.participation import Adjacency
from fieldfare_server.api.population_schemas import Charge
from fieldfare_server.cli.administer import actor
from fieldfare_server.cli.command import CommandResult, command
from fieldfare_server.cli.options import HomeOption, LedgerOption
from fieldfare_server.cli.output import print_text
from fieldfare_server.cli.remote import CaFileOption, TokenFileOption, UrlOption, refuse_two, refuse_without_url, remote
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import ChargeView

Action = Literal["reserve", "commit", "release"]


@command
def charge(
    population: Annotated[str, typer.Argument(help="whose budget")],
    key: Annotated[str, typer.Option(help="idempotency key: repeating a command with it changes nothing")],
    action: Annotated[Action, typer.Option(help="reserve before it happens")] = "reserve",
    mu: Annotated[float | None, typer.Option(help="of Gaussian DP")] = None,
    trials: Annotated[
        int | None, typer.Option(help="with --mu: so many sealed trials of it, of which only the best is ever shown")
    ] = None,
    rho: Annotated[float | None, typer.Option(help="of zero-concentrated DP")] = None,
    epsilon: Annotated[float | None, typer.Option(help="of (epsilon, delta)-DP")] = None,
    delta: Annotated[float | None, typer.Option(help="with --epsilon [0]")] = None,
    rate: Annotated[float | None, typer.Option(help="of Poisson sampling, with --noise-multiplier and --steps")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="noise std over clip norm")] = None,
    steps: Annotated[int | None, typer.Option(help="sampled steps")] = None,
    adjacency: Annotated[Adjacency | None, typer.Option(help="that the loss is for, needed unless zero_out")] = None,
    what: Annotated[str, typer.Option(help="what is trained; the audit log keeps it")] = "",
    why: Annotated[str, typer.Option(help="why; the audit log keeps it")] = "",
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    home: HomeOption = None,
    ledger: LedgerOption = None,
) -> CommandResult:
    """Reserve, commit or release a loss of another trainer. All users of the population are charged alike."""
    given: dict[str, object] = {"mu": mu, "trials": trials, "rho": rho, "epsilon": epsilon, "delta": delta}
    given |= {"rate": rate, "steps": steps, "noise_multiplier": noise_multiplier, "adjacency": adjacency}
    if action != "reserve" and set(given.values()) != {None}:
        raise Conflict(f"--action {action}", "a loss is given to reserve it, and only then.", "--key alone")
    loss = Foreign.of(given) if action == "reserve" else None
    if url is None:
        refuse_without_url(token_file, ca_file)
        state = StateDirectory.of(home, ledger)
        with Ledger.open(state.ledger, head_file=state.head_file) as opened:
            # Who may write to the ledger itself administers it.
            made = _charge(opened, population, key, action, loss, what, why, anyones=True)
    else:
        refuse_two(home, ledger)
        with remote(url, token_file, ca_file) as client:
            made = _charge(client, population, key, action, loss, what, why)
    told = Charge.of(made) if isinstance(made, ChargeView) else made
    return CommandResult(told, lambda: print_text(f"Charge {made.key} on {made.population}: {made.state}."))


def _charge(
    to: Any, population: str, key: str, action: str, loss: Foreign | None, what: str, why: str, **more: bool
) -> Any:
    """Do what was asked. to: a `Ledger` or a `Client`. more: what a ledger is told of who closes a charge."""
    if loss is not None:
        return to.reserve_charge(population, key, loss, what=what, why=why, actor=actor())
    close = to.commit_charge if action == "commit" else to.release_charge
    return close(population, key, actor=actor(), **more)

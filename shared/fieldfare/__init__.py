"""Fieldfare: federated learning with server-side, user-level differential privacy. `import fieldfare as ff`.

    ff.PrivateStrategy   stands where Flower's FedAvg stands: what it releases is private for every user
    ff.private           many users a node, your training loop: @ff.private.train(build), @ff.private.users
    ff.masked            a mod of any ClientApp: nothing but masked sums leaves its node
    ff.budget            a mod of any ClientApp: its user is charged at the node, before anybody trains
    ff.LocalGrid         runs any Flower app in this process, without network and Ray

    ff.Plan              one training, described completely: from keywords, or Plan.from_toml(text)
    ff.price             what a plan costs and how much noise it adds; runs nothing, charges nothing
    ff.simulate          runs plans here, on the users of their tasks, and charges their population
    ff.compare           one plan, several mechanisms: prices, and scores where they train
    ff.ask               a question about users' data: charged, then answered with noise
    ff.tune              trials on a share of the users: charged, compared, and a plan for the others
    ff.Task              model, loss, data and score of what is trained
    ff.UserTable         the users, and their rows

    ff.Ledger            the budgets, and all that was charged: Ledger.open(url)
    ff.LedgerAccountant  charges Flower's own DifferentialPrivacy wrapper to the ledger
    ff.mechanisms        the kinds of noise
    ff.errors            what is refused: every refusal says what, why and the nearest that is allowed

Importing it loads nothing heavy: each public name is imported when it is first used. `__init__.pyi` has their
types.

This package is also the privacy core (noise mechanisms, participation, accounting, clipping, plans): pure
mathematics and types, without Flower, web, database or files. The public names of server and client are
reached by name alone.
"""

from importlib import import_module
from typing import Any

__version__ = "1.0.0"

# name -> (where it is: "module" or "module:attribute", the extras that it needs)
_PUBLIC = {
    "LocalGrid": ("fieldfare_client.simulation:LocalGrid", "client"),
    "Ledger": ("fieldfare_server.ledger:Ledger", "server"),
    "LedgerAccountant": ("fieldfare_server.accountant:LedgerAccountant", "server"),
    "Plan": ("fieldfare.plan:Plan", "server"),
    "PrivateStrategy": ("fieldfare_server.run.private.strategy:PrivateStrategy", "server"),
    "Task": ("fieldfare.task:Task", ""),
    "UserTable": ("fieldfare_client.users:UserTable", ""),
    "ask": ("fieldfare_server.notebook.asking:ask", "server,client"),
    "budget": ("fieldfare_client.mods:budget", "node,accounting"),
    "compare": ("fieldfare_server.notebook.comparison:compare", "server,client"),
    "errors": ("fieldfare.errors", ""),
    "masked": ("fieldfare_client.mods:masked", "node"),
    "mechanisms": ("fieldfare.mechanisms", "accounting"),
    "price": ("fieldfare_server.run.pricing:price", "server"),
    "private": ("fieldfare_client.private", "node"),
    "simulate": ("fieldfare_server.notebook.simulation:simulate", "server,client"),
    "tune": ("fieldfare_server.notebook.tuning:tune", "server,client"),
}

__all__ = [
    "Ledger",
    "LedgerAccountant",
    "LocalGrid",
    "Plan",
    "PrivateStrategy",
    "Task",
    "UserTable",
    "__version__",
    "ask",
    "budget",
    "compare",
    "errors",
    "masked",
    "mechanisms",
    "price",
    "private",
    "simulate",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Import a public name. Raises `ModuleNotFoundError`, which names the extra to install, where a package lacks."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fieldfare' has no attribute {name!r}")
    path, extras = _PUBLIC[name]
    module, _, attribute = path.partition(":")
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if not extras or missing.split(".")[0].startswith("fieldfare"):
            raise
        raise ModuleNotFoundError(
            f"fieldfare.{name} needs {missing!r}, which is not installed: pip install 'fieldfare[{extras}]'",
            name=missing,
        ) from error
    # Kept under its name, so that this function is asked once.
    value = globals()[name] = getattr(loaded, attribute) if attribute else loaded
    return value


def __dir__() -> list[str]:
    return list(__all__)

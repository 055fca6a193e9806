"""The words for a run's state, and which states hold a budget or a lease: each list is written here and only here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

# States in which a run holds a reservation.
ActiveState = Literal["running", "paused", "stopping", "interrupted"]
# States in which a run stays for ever, with its reservation returned.
EndState = Literal["done", "stopped", "exhausted", "failed"]
RunState = Literal[ActiveState, EndState]
RoundState = Literal["open", "committed", "void"]
PopulationState = Literal["open", "closed", "proposed", "withdrawn"]
# How a run is charged: to its users' odometers, or to all users alike.
Accounting = Literal["individual", "worst-case"]
# Of a charge by another trainer. Only a released one costs nothing.
ChargeState = Literal["reserved", "committed", "released"]
# What a person may ask of a run under way.
Request = Literal["stop", "pause"]
# What an API token allows.
Scope = Literal["read", "charge", "admin"]

ACTIVE: tuple[ActiveState, ...] = get_args(ActiveState)
# States in which a coordinator holds the run's lease, or held it until it fell silent.
HELD = tuple(state for state in ACTIVE if state != "interrupted")
SCOPES: tuple[Scope, ...] = get_args(Scope)
# The state of a run that a coordinator holds, by the request that stands.
STATE_AFTER: Mapping[str | None, ActiveState] = {"stop": "stopping", "pause": "paused", None: "running"}

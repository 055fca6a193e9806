"""The words for a run's state, and which states hold a budget or a lease: each list is written here and only here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

ActiveState = Literal["running", "paused", "stopping", "interrupted"]
"""States in which a run holds a reservation."""
EndState = Literal["done", "stopped", "exhausted", "failed"]
"""States in which a run stays for ever, with its reservation returned."""
RunState = Literal[ActiveState, EndState]
RoundState = Literal["open", "committed", "void"]
PopulationState = Literal["open", "closed", "proposed", "withdrawn"]
Accounting = Literal["individual", "worst-case"]
"""How a run is charged: to its users' odometers, or to all users alike."""
ChargeState = Literal["reserved", "committed", "released"]
"""Of a charge by another trainer. Only a released one costs nothing."""
Request = Literal["stop", "pause"]
"""What a person may ask of a run under way."""
Scope = Literal["read", "charge", "admin"]
"""What an API token allows."""

ACTIVE: tuple[ActiveState, ...] = get_args(ActiveState)
HELD = tuple(state for state in ACTIVE if state != "interrupted")
"""States in which a coordinator holds the run's lease, or held it until it fell silent."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
STATE_AFTER: Mapping[Request | None, ActiveState] = {"stop": "stopping", "pause": "paused", None: "running"}
"""The state of a run that a coordinator holds, by the request that stands."""

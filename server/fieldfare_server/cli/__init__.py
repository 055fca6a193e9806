"""The `fieldfare` command: one file a command. In the server only this package may import `fieldfare_client`."""

from __future__ import annotations

import os
import sys

# Flower reads these when it is imported, and would otherwise call out over the network.
for _name, _value in {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}.items():
    os.environ.setdefault(_name, _value)


def main() -> None:
    """Console entry point."""
    # A task of one's own is a module of the directory that one works in. Last, so that it replaces no other module.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    from fieldfare_server.cli.application import assemble

    assemble(sys.argv[1] if len(sys.argv) > 1 else None)()

"""Everything that depends on how Flower works inside.

No other package imports more of Flower than its public interface: `flwr.app`, `flwr.serverapp`,
`flwr.clientapp` and `flwr.simulation`. Here every other name is looked up when it is needed
(`fieldfare_flower.private`). A Flower that lacks it runs as it is, with one warning.
"""

# Variables that Flower and Ray read when they are imported: without them they contact their makers.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}

"""Everything that depends on how Flower works inside.

No other package imports more of Flower than its public interface: `flwr.app`, `flwr.serverapp`,
`flwr.clientapp` and `flwr.simulation`. Here every other name is looked up when it is needed
(`fieldfare_flower.private`). A Flower that lacks it runs as it is, with one warning.
"""

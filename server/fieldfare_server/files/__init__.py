"""The state directory: checkpoints, keys, strategies."""

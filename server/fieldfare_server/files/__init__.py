"""The state directory: atomic writes, checkpoints, keys, strategies."""

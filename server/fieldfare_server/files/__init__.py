"""The state directory: atomic writes, checkpoints, keys, the matrix cache."""

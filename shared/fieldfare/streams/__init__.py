"""Running noise: row t of B z, one row a call."""

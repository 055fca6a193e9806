"""Handing runs to a federation of real machines."""

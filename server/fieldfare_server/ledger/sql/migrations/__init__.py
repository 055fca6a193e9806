"""Alembic's migrations of the ledger, oldest first: `versions/NNNN_what.py`."""

"""Which errors of a request say that the SuperLink failed at it, and may answer the next one.

Its database is locked, or its disk full. With SQLite, a node that uploads a gigabyte locks the database for longer than
the SuperLink waits.
"""

from __future__ import annotations


def server_error(error: Exception) -> int:
    """The status, 500 or more, with which the SuperLink answered; 0 for any other error."""
    status = getattr(getattr(error, "response", None), "status_code", 0)
    return status if isinstance(status, int) and status >= 500 else 0

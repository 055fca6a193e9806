"""Check one service from inside its container, with the standard library alone: it runs every few seconds.

    healthcheck.py URL [CA]      exits with 0 if URL answers 200 over a connection that CA (a PEM file) verifies, else 1

A port whose certificate has expired is not healthy: no client can talk to it.
"""

import ssl
import sys
import urllib.error
import urllib.request


def find_fault(url: str, ca: str | None) -> str:
    """Empty if healthy, else the reason."""
    context = ssl.create_default_context(cafile=ca) if ca else None
    try:
        with urllib.request.urlopen(url, timeout=4, context=context) as reply:  # noqa: S310  (the operator's own URL)
            return "" if reply.status == 200 else f"status {reply.status}"
    except (OSError, ssl.SSLError) as error:
        return str(error)


if __name__ == "__main__":
    reason = find_fault(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
    if reason:
        print(reason, file=sys.stderr)
        sys.exit(1)

"""Health of one service, from inside its container, with the standard library alone: it runs every few seconds.

    healthcheck.py URL [CA]      0 if URL answers 200 over a connection that CA (PEM file) vouches for, else 1

A runtime port that is up but whose certificate has run out is not healthy: nobody could talk to it.
"""

import ssl
import sys
import urllib.error
import urllib.request


def healthy(url: str, ca: str | None) -> str:
    """Empty if healthy, else why not."""
    context = ssl.create_default_context(cafile=ca) if ca else None
    try:
        with urllib.request.urlopen(url, timeout=4, context=context) as reply:  # noqa: S310  (the operator's own URL)
            return "" if reply.status == 200 else f"status {reply.status}"
    except (OSError, ssl.SSLError) as error:
        return str(error)


if __name__ == "__main__":
    why = healthy(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
    if why:
        print(why, file=sys.stderr)
        sys.exit(1)

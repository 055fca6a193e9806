"""Whether a SuperLink registers nodes that were never admitted: a test of what FIELDFARE_NODE_AUTH=required states."""

from __future__ import annotations

from pathlib import Path

import httpx

from fieldfare_flower.private import FlowerDiffers
from fieldfare_server.doctor.finding import Finding, fault, fine, skipped


def strangers(address: str, root_certificates: Path | None) -> Finding:
    """Ask the SuperLink at `address` to register a node with a made-up key. One that does is at fault."""
    from fieldfare_flower.nodes import admits_unknown_node  # imports Flower

    check = "strangers"
    try:
        admitted = admits_unknown_node(address, root_certificates, insecure=root_certificates is None)
    except FlowerDiffers as error:
        return skipped(check, str(error))
    except httpx.HTTPStatusError as error:
        return skipped(check, f"the SuperLink's answer ({error.response.status_code}) says nothing about them.")
    except httpx.HTTPError as error:
        return skipped(check, f"the SuperLink could not be asked ({type(error).__name__}).")
    if not admitted:
        return fine(check, "the SuperLink refuses nodes that were not admitted.")
    return fault(
        check,
        "FIELDFARE_NODE_AUTH=required states that the SuperLink authenticates nodes; it registered an unknown one. "
        "Participation limits rest on what nodes claim.",
        "run the SuperLink with --enable-supernode-auth, or the coordinator without FIELDFARE_NODE_AUTH",
    )

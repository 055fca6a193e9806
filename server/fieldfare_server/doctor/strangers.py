"""Whether a SuperLink registers nodes that were never admitted: a test of what FIELDFARE_NODE_AUTH=required states."""

from __future__ import annotations

from pathlib import Path

import httpx
from flwr.proto.fleet_pb2 import RegisterNodeFleetRequest, UnregisterNodeFleetRequest
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fieldfare_server.doctor.finding import Finding, fault, fine, skipped


def strangers(address: str, root_certificates: Path | None) -> Finding:
    """Ask the SuperLink at `address` to register a node with a key made up here.

    One that does is not what was stated; the node is taken out again, and was never active.
    """
    check = "strangers"
    private, public = generate_key_pairs()
    client = FleetHttpClient.from_server_address(
        address,
        root_certificates is None,
        None if root_certificates is None else str(root_certificates),
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(private, public),
        ],
    )
    with client:
        try:
            node = client.RegisterNode(RegisterNodeFleetRequest(public_key=public_key_to_bytes(public))).node_id
        except httpx.HTTPStatusError as error:
            said = FlowerError.from_json(error.response.text)
            if said is not None and said.code == ApiErrorCode.FLEET_SUPERNODE_REGISTRATION_DISABLED:
                return fine(check, "the SuperLink refuses nodes that were not admitted.")
            return skipped(check, f"the SuperLink's answer ({error.response.status_code}) says nothing about them.")
        except httpx.HTTPError as error:
            return skipped(check, f"the SuperLink could not be asked ({type(error).__name__}).")
        client.UnregisterNode(UnregisterNodeFleetRequest(node_id=node))
    return fault(
        check,
        "FIELDFARE_NODE_AUTH=required states that the SuperLink authenticates nodes; it registered an unknown one. "
        "Participation limits rest on what nodes claim.",
        "run the SuperLink with --enable-supernode-auth, or the coordinator without FIELDFARE_NODE_AUTH",
    )

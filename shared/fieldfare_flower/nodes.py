"""Questions about a federation's nodes that Flower's command line cannot ask.

* `remove_nodes`: `flwr supernode unregister` wants a node's id, and `flwr supernode list` (pull request 5990)
  shows no public keys to find it by. Unnecessary once the list shows keys.
* `admits_unknown_node`, `refuses_unknown_nodes`: only trying it out tells whether a SuperLink authenticates
  its nodes. Unnecessary once a SuperLink states it.

Upstream no issue is known for either. Both use the HTTP clients of Flower 1.41, and raise `FlowerDiffers`
without them.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from flwr.serverapp import Grid

from fieldfare_flower import private

log = logging.getLogger("fieldfare.flower")


def remove_nodes(address: str, root_certificates: Path, public_key: EllipticCurvePublicKey) -> int:
    """Remove every node with this key from the federation at `address` (host:port); returns how many there
    were.

    Raises `httpx.HTTPError` where the SuperLink does not answer, or refuses.
    """
    with private.required("nodes cannot be removed by key, only by id (`flwr supernode list` and `unregister`)"):
        from flwr.proto.control_pb2 import ListNodesRequest, UnregisterNodeRequest
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    key = public_key_to_bytes(public_key)
    client = ControlHttpClient.from_server_address(address, False, str(root_certificates), ())
    try:
        nodes = client.ListNodes(ListNodesRequest()).nodes_info
        ids = [node.node_id for node in nodes if node.public_key == key and node.status != "unregistered"]
        for node in ids:
            client.UnregisterNode(UnregisterNodeRequest(node_id=node))
    finally:
        client.close()
    return len(ids)


def refuses_unknown_nodes(grid: Grid) -> bool:
    """Return whether the SuperLink behind a ServerApp's grid refuses to register a node whose key is made up
    here.

    With `--enable-supernode-auth` it refuses every node that registers itself: each node of the grid is one
    whose key an operator registered, and that has signed with it. False where it registers the node, and
    where it cannot be asked. Each SuperLink is asked once a process.
    """
    address, certificate = getattr(grid, "_addr", None), getattr(grid, "_cert", None)
    insecure = getattr(grid, "_insecure", None)
    if not isinstance(address, str) or not isinstance(insecure, bool):
        return False
    return _refuses(address, insecure, certificate)


@lru_cache
def _refuses(address: str, insecure: bool, certificate: bytes | None) -> bool:
    try:
        return not admits_unknown_node(address, certificate, insecure)
    except (private.FlowerDiffers, httpx.HTTPError) as error:
        log.info("the SuperLink could not be asked whether it authenticates nodes (%s)", type(error).__name__)
        return False


def admits_unknown_node(address: str, root_certificates: Path | bytes | None, insecure: bool = False) -> bool:
    """Return whether the SuperLink at `address` (host:port) registers a node whose key is made up here.

    A node that it registers is removed at once, and was never active.

    Args:
        root_certificates: the authority to trust, as a file or as PEM text; None: this machine's.
        insecure: connect without TLS.

    Raises:
        httpx.HTTPError: the SuperLink does not answer, or refuses for another reason than its authentication.
    """
    with private.required("a SuperLink cannot be asked whether it admits unknown nodes"):
        from flwr.proto.fleet_pb2 import RegisterNodeFleetRequest, UnregisterNodeFleetRequest
        from flwr.supercore.error import ApiErrorCode, FlowerError
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
        from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
        from flwr.supernode.fleet_http_client import FleetHttpClient
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
    private_key, key = generate_key_pairs()
    client = FleetHttpClient.from_server_address(
        address,
        insecure,
        str(root_certificates) if isinstance(root_certificates, Path) else root_certificates,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(private_key, key),
        ],
    )
    with client:
        try:
            node = client.RegisterNode(RegisterNodeFleetRequest(public_key=public_key_to_bytes(key))).node_id
        except httpx.HTTPStatusError as error:
            refusal = FlowerError.from_json(error.response.text)
            if refusal is not None and refusal.code == ApiErrorCode.FLEET_SUPERNODE_REGISTRATION_DISABLED:
                return False
            raise
        client.UnregisterNode(UnregisterNodeFleetRequest(node_id=node))
    return True

"""Questions about a federation's nodes that Flower's command line cannot ask.

* `remove_nodes`: `flwr supernode unregister` wants a node's id, and `flwr supernode list` (pull request 5990) shows
  no public keys to find it by. Upstream: no issue is known. Unnecessary once the list shows keys.
* `admits_unknown_node`: whether a SuperLink authenticates its nodes can only be tried out. Upstream: no issue is
  known. Unnecessary once a SuperLink states it.

Both call the HTTP clients of Flower 1.41. With a Flower that lacks them they raise `FlowerDiffers`.
"""

from __future__ import annotations

from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from fieldfare_flower import private

_KEYS = "flwr.supercore.primitives.asymmetric"


def remove_nodes(address: str, root_certificates: Path, public_key: EllipticCurvePublicKey) -> int:
    """Remove every node with this key from the federation at `address` (host:port); returns how many there were.

    Raises:
        httpx.HTTPError: the SuperLink did not answer, or refused.
        FlowerDiffers: this Flower has no such client.
    """
    client_class, list_request, removal_request, encode_key = private.require(
        "nodes cannot be removed by their key (`flwr supernode list` and `unregister` remove them by id)",
        "flwr.supercore.control:ControlHttpClient",
        "flwr.proto.control_pb2:ListNodesRequest",
        "flwr.proto.control_pb2:UnregisterNodeRequest",
        f"{_KEYS}:public_key_to_bytes",
    )
    encoded = encode_key(public_key)
    client = client_class.from_server_address(address, False, str(root_certificates), ())
    try:
        nodes = client.ListNodes(list_request()).nodes_info
        ids = [node.node_id for node in nodes if node.public_key == encoded and node.status != "unregistered"]
        for node in ids:
            client.UnregisterNode(removal_request(node_id=node))
    finally:
        client.close()
    return len(ids)


def admits_unknown_node(address: str, root_certificates: Path | None) -> bool:
    """Whether the SuperLink at `address` (host:port) registers a node with a key that is made up here.

    A node that it registers is removed at once, and was never active.

    Raises:
        httpx.HTTPError: the SuperLink did not answer, or refused for another reason than its authentication.
        FlowerDiffers: this Flower has no such client.
    """
    (
        client_class,
        version_interceptor,
        signing_interceptor,
        make_keys,
        encode_key,
        registration,
        removal,
        api_error,
        codes,
    ) = private.require(
        "a SuperLink cannot be asked whether it admits unknown nodes",
        "flwr.supernode.fleet_http_client:FleetHttpClient",
        "flwr.supercore.interceptors:RuntimeVersionHttpInterceptor",
        "flwr.supernode.node_auth_http_interceptor:NodeAuthHttpInterceptor",
        f"{_KEYS}:generate_key_pairs",
        f"{_KEYS}:public_key_to_bytes",
        "flwr.proto.fleet_pb2:RegisterNodeFleetRequest",
        "flwr.proto.fleet_pb2:UnregisterNodeFleetRequest",
        "flwr.supercore.error:FlowerError",
        "flwr.supercore.error:ApiErrorCode",
    )
    private_key, public_key = make_keys()
    interceptors = [version_interceptor(component_name="SuperNode"), signing_interceptor(private_key, public_key)]
    certificates = None if root_certificates is None else str(root_certificates)
    client = client_class.from_server_address(address, certificates is None, certificates, interceptors=interceptors)
    with client:
        try:
            node = client.RegisterNode(registration(public_key=encode_key(public_key))).node_id
        except httpx.HTTPStatusError as error:
            refusal = api_error.from_json(error.response.text)
            if refusal is not None and refusal.code == codes.FLEET_SUPERNODE_REGISTRATION_DISABLED:
                return False
            raise
        client.UnregisterNode(removal(node_id=node))
    return True

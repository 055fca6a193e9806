"""A Flower without the clients that ask about nodes is reported. The real clients: tests/server/test_doctor.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fieldfare_flower import nodes
from fieldfare_flower.private import FlowerDiffers
from fieldfare_server.deployment.certificates import node_key
from fieldfare_server.deployment.nodes import revoke_node
from fieldfare_server.doctor.strangers import strangers
from fieldfare_server.run.presence.identity import identity_is_stable, keys_are_proven
from support.refusals import coded


class HasAddress:
    """What a ServerApp's grid knows of its SuperLink."""

    _insecure, _cert = True, None

    def __init__(self, address: str) -> None:
        self._addr = address


def grid_at(address: str) -> Any:
    return HasAddress(address)


def test_a_node_cannot_be_removed_by_key_and_the_message_says_how_else(
    remove: Callable[..., None], tmp_path: Path
) -> None:
    remove("flwr.supercore.control")
    (tmp_path / "n.pub").write_bytes(node_key("n")[1])
    with pytest.raises(FlowerDiffers, check=coded("flower-differs")):
        revoke_node("127.0.0.1:1", tmp_path / "ca.crt", tmp_path / "n.pub")


def test_the_doctor_skips_the_question_that_it_cannot_ask(remove: Callable[..., None]) -> None:
    remove("flwr.supernode.fleet_http_client")
    finding = strangers("127.0.0.1:1", None)
    assert finding.state == "skipped"
    assert "fleet_http_client" in finding.said


@pytest.mark.parametrize("admits", [True, False])
def test_a_superlink_that_registers_a_stranger_proves_no_key(admits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked once a process; what an operator states is not asked. Real SuperLinks: tests/server/doctor."""
    asked = []

    def admits_unknown_node(*arguments: object) -> bool:
        asked.append(arguments)
        return admits

    monkeypatch.setattr(nodes, "admits_unknown_node", admits_unknown_node)
    monkeypatch.delenv("FIELDFARE_NODE_AUTH", raising=False)
    grid: Any = HasAddress(f"superlink-{admits}:1")
    assert keys_are_proven(grid) == identity_is_stable(grid) == (not admits)
    assert asked == [(grid._addr, None, True)]
    monkeypatch.setenv("FIELDFARE_NODE_AUTH", "required")
    assert keys_are_proven(grid_at("never-asked:1"))
    monkeypatch.setenv("FIELDFARE_NODE_AUTH", "simulated")
    assert not keys_are_proven(grid_at("never-asked:1"))
    assert len(asked) == 1


def test_a_superlink_that_cannot_be_asked_proves_no_key(
    remove: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FIELDFARE_NODE_AUTH", raising=False)
    assert not keys_are_proven(grid_at("127.0.0.1:1"))  # nothing listens there
    nowhere: Any = object()
    assert not keys_are_proven(nowhere)  # a grid that names no SuperLink
    remove("flwr.supernode.fleet_http_client")
    assert not keys_are_proven(grid_at("127.0.0.1:2"))

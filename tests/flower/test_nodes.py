"""A Flower without the clients that ask about nodes is reported. The real clients: tests/server/test_doctor.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fieldfare_flower.private import FlowerDiffers
from fieldfare_server.deployment.certificates import node_key
from fieldfare_server.deployment.nodes import revoke_node
from fieldfare_server.doctor.strangers import strangers


def test_a_node_cannot_be_removed_by_key_and_the_message_says_how_else(
    remove: Callable[..., None], tmp_path: Path
) -> None:
    remove("flwr.supercore.control")
    (tmp_path / "n.pub").write_bytes(node_key("n")[1])
    with pytest.raises(FlowerDiffers, match="unregister"):
        revoke_node("127.0.0.1:1", tmp_path / "ca.crt", tmp_path / "n.pub")


def test_the_doctor_skips_the_question_that_it_cannot_ask(remove: Callable[..., None]) -> None:
    remove("flwr.supernode.fleet_http_client")
    finding = strangers("127.0.0.1:1", None)
    assert finding.state == "skipped"
    assert "fleet_http_client" in finding.said

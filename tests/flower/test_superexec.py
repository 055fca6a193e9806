"""What a ServerApp prints is heard where Flower is what this was written for; another Flower is left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.run_superexec import AutoExecPlugin

from fieldfare_flower.coordinator import unmute


def test_the_installed_flower_would_throw_it_away_and_then_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AutoExecPlugin, "suppress_output", True)
    plugin = AutoExecPlugin.__new__(AutoExecPlugin)
    plugin.runtime_api_address, plugin.insecure, plugin.root_certificates_path = "x:1", True, None
    plugin.runtime_dependency_install = False
    assert plugin._build_execution_spec("token", TaskType.SERVER_APP, 1).suppress_output
    assert unmute(AutoExecPlugin)
    assert not plugin._build_execution_spec("token", TaskType.SERVER_APP, 1).suppress_output


def test_another_plugin_is_left_alone() -> None:
    other = SimpleNamespace()
    assert not unmute(other)
    assert not unmute(None)
    assert vars(other) == {}

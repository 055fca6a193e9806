"""A ServerApp's log is visible with the Flower that this was written for; another Flower runs as it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.run_superexec import AutoExecPlugin

from fieldfare_flower import coordinator, private
from fieldfare_flower.coordinator import show_serverapp_output


def test_the_installed_flower_would_discard_the_output_and_then_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AutoExecPlugin, "suppress_output", True)
    plugin = AutoExecPlugin.__new__(AutoExecPlugin)
    plugin.runtime_api_address, plugin.insecure, plugin.root_certificates_path = "x:1", True, None
    plugin.runtime_dependency_install = False
    assert plugin._build_execution_spec("token", TaskType.SERVER_APP, 1).suppress_output
    assert show_serverapp_output(AutoExecPlugin)
    assert not plugin._build_execution_spec("token", TaskType.SERVER_APP, 1).suppress_output


def test_another_plugin_is_left_alone() -> None:
    other = SimpleNamespace()
    assert not show_serverapp_output(other)  # type: ignore[arg-type]
    assert not show_serverapp_output(None)
    assert vars(other) == {}


def test_a_flower_without_the_plugin_runs_as_it_is_with_one_warning(
    remove: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ran = []
    remove("flwr.supercore.superexec.run_superexec")
    monkeypatch.setattr(private, "load_program", lambda name: lambda: ran.append(name))
    monkeypatch.setattr(coordinator.logs, "configure", lambda level: None)
    with caplog.at_level(logging.WARNING):
        coordinator.main()
    assert ran == ["flower-superexec"]
    (warning,) = caplog.records
    assert "flwr log" in warning.getMessage()

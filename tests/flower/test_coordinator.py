"""A ServerApp's log is visible with the Flower that this was written for; another Flower runs as it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace

import httpx
import pytest
from flwr.supercore.constant import TaskType
from flwr.supercore.runtime.runtime_http_client import RuntimeHttpClient
from flwr.supercore.superexec.run_superexec import AutoExecPlugin

from fieldfare_flower import coordinator, private, server_errors
from fieldfare_flower.coordinator import show_serverapp_output, survive_http_500


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


def test_a_superlink_that_fails_is_asked_for_work_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its database was locked while a node uploaded a gigabyte, and the SuperExec took its ServerApp along."""
    statuses = [500, 503, 200, 403]

    def acquire(self: RuntimeHttpClient, request: str) -> str:
        found = httpx.Response(statuses.pop(0), request=httpx.Request("POST", "https://superlink/v1/runtime"))
        return found.raise_for_status() and request

    monkeypatch.setattr(RuntimeHttpClient, "AcquireTask", acquire)
    monkeypatch.setattr(server_errors, "LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(server_errors, "FIRST_PAUSE", 0.0)
    assert survive_http_500(RuntimeHttpClient)
    client = RuntimeHttpClient.__new__(RuntimeHttpClient)
    assert client.AcquireTask("work?") == "work?"  # type: ignore[arg-type,comparison-overlap]
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        client.AcquireTask("work?")  # type: ignore[arg-type]
    assert statuses == []
    assert not survive_http_500(None)


def test_a_flower_without_the_plugin_runs_as_it_is_with_one_warning(
    remove: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ran = []
    remove("flwr.supercore.superexec.run_superexec")
    monkeypatch.setattr(private, "load_program", lambda name: lambda: ran.append(name))
    monkeypatch.setattr(coordinator.logs, "configure", lambda level: None)
    monkeypatch.setattr(coordinator, "survive_http_500", lambda client: True)
    with caplog.at_level(logging.WARNING):
        coordinator.main()
    assert ran == ["flower-superexec"]
    (warning,) = caplog.records
    assert "flwr log" in warning.getMessage()

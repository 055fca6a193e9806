"""What an empty environment installs and shows: asked by the workflows on every Python, and by `.ci/run` on one."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def script() -> Any:
    spec = importlib.util.spec_from_file_location("first_minute", ROOT / "deploy/supply/first_minute.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_python_that_is_promised_is_tried_in_an_empty_container() -> None:
    job = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["first-minute"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = [
        found[1] for line in project["classifiers"] if (found := re.fullmatch(r".*:: Python :: (3\.\d+)", line))
    ]
    assert job["strategy"]["matrix"]["python"] == promised
    assert set(job["strategy"]["matrix"]["extras"]) == set(script().AIMS)
    assert "make first-minute" in (ROOT / ".ci/run").read_text().splitlines()


def test_a_stranger_has_no_variable_of_ours_and_an_account_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIELDFARE_HOME", "/elsewhere")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example")
    one = script().Stranger(tmp_path, sys.executable)
    assert one.env["HOME"] == str(tmp_path)
    assert one.env["PIP_INDEX_URL"] == "https://index.example"
    assert not {"FIELDFARE_HOME", "PYTHONPATH"} & set(one.env)
    one.does("look", "python", "-c", "import sys; sys.exit('/elsewhere' in sys.path)")
    assert one.took["look, processor s"] > 0


def test_a_program_that_ends_without_a_page_is_quoted(tmp_path: Path) -> None:
    """The message was the same for a program that had failed and for a slow one: the page never showed it."""
    module = script()
    assert module.page_of("State: /home\nBudget page: http://127.0.0.1:1/\nmore") == "http://127.0.0.1:1/"
    assert not module.page_of("Budget page: http://127.0.0."), "not whole yet"
    one = module.Stranger(tmp_path, sys.executable)
    with pytest.raises(RuntimeError, match=r"exit code 1 after .* s(?s:.*)the disk is full"):
        one.serves("page", module.has_page, "python", "-c", "import sys; sys.exit('the disk is full')")


def test_a_page_of_this_machine_is_asked_by_no_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"app.js")

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with HTTPServer(("127.0.0.1", 0), Page) as served:
        threading.Thread(target=served.handle_request, daemon=True).start()
        assert script().answer(f"http://127.0.0.1:{served.server_port}/") == "app.js"


def test_what_is_above_its_aim_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = script()
    took = dict.fromkeys(module.AIMS["service"], 1.0)
    monkeypatch.setattr(sys, "argv", ["first_minute.py", "--extras", "service"])
    monkeypatch.setattr(module, "first_minute", lambda *_: took)
    module.main()
    told = capsys.readouterr().out
    assert '"installed, MB": 1.0' in told
    assert "Above" not in told
    monkeypatch.setattr(module, "first_minute", lambda *_: took | {"installed, MB": 301.0})
    module.main()
    assert "Above its aim: installed, MB: 301 of 300" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("extras", ["service", "demo"])
def test_an_empty_environment_serves_the_page_and_trains(extras: str, tmp_path: Path) -> None:
    took = script().first_minute(sys.executable, extras, tmp_path)
    assert set(script().AIMS[extras]) <= set(took)


@pytest.mark.parametrize(
    ("said", "steps"),
    [
        ((), ["--index-url https://download.pytorch.org/whl/cpu torch", ".[demo]"]),
        (("TORCH_INDEX=",), [".[demo]"]),
        (("EXTRAS=service",), [".[service]"]),
    ],
)
def test_one_command_installs_the_cpu_build_of_pytorch_first(
    said: tuple[str, ...], steps: list[str], tmp_path: Path
) -> None:
    command = ["make", "--dry-run", "install", f"VENV={tmp_path}/venv", *said]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    installs = [line for line in told.splitlines() if " pip install " in line]
    assert len(installs) == len(steps)
    assert all(step in line for step, line in zip(steps, installs, strict=True))

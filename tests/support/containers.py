"""One compose project, really started, as the tests of tests/e2e drive it.

COMPOSE and ENGINE say how the two programs are called (default `docker compose`, `docker`). The project has a name
and a port of its own, so that tests never touch a deployment that runs on the same machine.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from support.waiting import free_port

ROOT = Path(__file__).parents[2]
COMPOSE = shlex.split(os.environ.get("COMPOSE", "docker compose"))
ENGINE = shlex.split(os.environ.get("ENGINE", "docker"))
PATIENCE = 900.0
PROFILES = ("submit", "register", "monitoring")
SERVICES = (
    "ledger",
    "superlink",
    "gate",
    "coordinator",
    "supervisor",
    "api",
    "node-1",
    "executor-1",
    "node-2",
    "executor-2",
)
"""All that run for as long as the deployment does."""
LET_IN = "SuperNode ID"
"""What a node says once its key is accepted."""
T = TypeVar("T")


def require_engine() -> None:
    """Skip the test where nobody asked for containers, or there is nothing to start them with."""
    if "CONTAINERS" not in os.environ:
        pytest.skip("starts containers: run it by `make containers-test`")
    for program in (COMPOSE[0], ENGINE[0]):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not here: set COMPOSE and ENGINE")


def wait_for(what: Callable[[], T], patience: float = PATIENCE) -> T:
    """The first true answer of `what`; what it raises meanwhile counts as no answer."""
    deadline = time.monotonic() + patience
    while True:
        last: object = "nothing yet"
        try:
            if found := what():
                return found
        except (OSError, AssertionError, subprocess.SubprocessError) as error:
            last = error
        assert time.monotonic() < deadline, f"not within {patience} s: {last}"
        time.sleep(1.0)


class Federation:
    """See the module. `up` first, `down` in any case."""

    def __init__(
        self, project: str, files: Sequence[str], task: str, directory: Path = ROOT, **environment: str
    ) -> None:
        """files: compose files, in `directory`. environment: what they are told beside the task and the page's port."""
        self.project, self.port, self._directory = project, free_port(), directory
        self._compose = [*COMPOSE, "--project-name", project, *(word for file in files for word in ("--file", file))]
        self._env = {**os.environ, "FIELDFARE_PORT": str(self.port), "FIELDFARE_TASK": task, **environment}
        self.token = ""
        self._containers: dict[str, str] = {}

    # -- the two programs -----------------------------------------------------------------------------------------

    def compose(self, *arguments: str, check: bool = True) -> str:
        self._containers.clear()  # it may make new ones
        return self._run([*self._compose, *arguments], check=check)

    def tell(self, **environment: str) -> None:
        """Tell the compose files more, or something else, at the next `up`."""
        self._env |= environment

    def engine(self, *arguments: str, stdin: bytes | None = None, check: bool = True) -> str:
        return self._run([*ENGINE, *arguments], stdin, check)

    def _run(self, command: list[str], stdin: bytes | None = None, check: bool = True) -> str:
        done = subprocess.run(
            command, cwd=self._directory, env=self._env, input=stdin, capture_output=True, check=False, timeout=PATIENCE
        )
        said = done.stdout.decode(errors="replace")
        why = f"{command} ended with {done.returncode}: {said}{done.stderr.decode(errors='replace')}"
        assert not check or done.returncode == 0, why
        return said

    # -- the whole ------------------------------------------------------------------------------------------------

    def up(self, *, anew: bool = True) -> None:
        """Start everything. anew: without anything that is left of an earlier start."""
        if anew:
            self.down()
        self.compose("up", "--detach")
        self.token = wait_for(lambda: self.exec("api", "cat", "/secrets/page.token").strip())

    def down(self) -> None:
        profiles = [word for profile in PROFILES for word in ("--profile", profile)]
        self.compose(*profiles, "down", "--volumes", check=False)
        # Not every compose takes volumes along.
        for volume in self.engine("volume", "ls", "--quiet").split():
            if volume.startswith(f"{self.project}_"):
                self.engine("volume", "rm", "--force", volume)

    # -- one service ----------------------------------------------------------------------------------------------

    def container(self, service: str) -> str:
        labels = {"project": self.project, "service": service}
        filters = [word for k, v in labels.items() for word in ("--filter", f"label=com.docker.compose.{k}={v}")]
        if service not in self._containers:
            self._containers[service] = self.engine("ps", "--all", "--quiet", *filters).split()[0]
        return self._containers[service]

    def exec(self, service: str, *command: str, stdin: bytes | None = None, check: bool = True) -> str:
        return self.engine("exec", "--interactive", self.container(service), *command, stdin=stdin, check=check)

    def say(self, service: str, *command: str) -> str:
        """All that a command prints, whether it succeeds or not."""
        return self.exec(service, "sh", "-c", 'exec "$@" 2>&1', "-", *command, check=False)

    def python(self, service: str, code: str) -> str:
        return self.exec(service, "python", "-", stdin=code.encode())

    def logs(self, service: str) -> str:
        done = subprocess.run([*ENGINE, "logs", self.container(service)], cwd=ROOT, capture_output=True, check=False)
        return (done.stdout + done.stderr).decode(errors="replace")

    def main_process(self, service: str) -> int:
        """Its first process, as this machine knows it; 0 while it does not run."""
        return int(self.engine("inspect", "--format", "{{.State.Pid}}", self.container(service)).strip() or 0)

    def strike(self, service: str) -> int:
        """SIGKILL from outside, for the engine's own `kill` also stops restarts; returns the process that died."""
        before = wait_for(lambda: self.main_process(service), 120)
        os.kill(before, signal.SIGKILL)
        return before

    def kill(self, service: str) -> None:
        """`strike`, then wait for the service's return."""
        before = self.strike(service)
        wait_for(lambda: self.main_process(service) not in (0, before), 120)

    # -- runs -----------------------------------------------------------------------------------------------------

    def get(self, path: str, token: str | None = "") -> Any:
        """A path of the API, with the page's token, or another one, or (None) without."""
        token = self.token if token == "" else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            body = reply.read()
        return json.loads(body) if "json" in reply.headers["content-type"] else body.decode()

    def submit(self, plan: str, trust: Sequence[str] = ("--root-certificates", "/secrets/ca.crt")) -> str:
        """Hand a plan (TOML text) to the federation; returns the run's id. trust: how the SuperLink is known."""
        return str(json.loads(self.ask_for(plan, *trust, "--detach", "--json"))["run"])

    def ask_for(self, plan: str, *options: str, check: bool = True) -> str:
        """What `fieldfare run` says of a plan in the service `submit`, the only one that may make its population."""
        ask = 'cat >/tmp/plan.toml; exec fieldfare run /tmp/plan.toml --create-population "$@"'
        return self.administer(ask, "--superlink", "superlink:8000", *options, stdin=plan, check=check)

    def administer(self, script: str, *arguments: str, stdin: str = "", mount: str = "", check: bool = True) -> str:
        """What a shell script says in the service `submit`, which an administrator uses."""
        return self.run_in("submit", script, *arguments, profile="submit", stdin=stdin, mount=mount, check=check)

    def run_in(
        self, service: str, script: str, *arguments: str, profile: str, stdin: str, mount: str = "", check: bool = True
    ) -> str:
        """What a shell script says in a new container of a service of `profile`; with its errors, unless `check`."""
        volume = ["--volume", mount] if mount else []
        shell = [service, "sh", "-c", script if check else f"{script} 2>&1", "-", *arguments]
        command = [*self._compose, "--profile", profile, "run", "--rm", "-T", *volume, *shell]
        return self._run(command, stdin.encode(), check)

    def state(self, run: str) -> str:
        return str(self.get(f"/v1/runs/{run}")["state"])

    def rounds(self, run: str) -> list[dict[str, Any]]:
        """All attempts at all rounds, in their order."""
        items = self.get(f"/v1/runs/{run}/rounds?limit=500")["items"]
        return sorted(items, key=lambda r: (r["index"], r["attempt"]))

    def wait_open(self, run: str, index: int) -> int:
        """Until round `index`, or a later one, is under way; returns which."""

        def found() -> list[int]:
            assert self.get(f"/v1/runs/{run}")["ended_at"] is None
            return [r["index"] for r in self.rounds(run) if r["index"] >= index and r["state"] == "open"]

        return wait_for(found)[0]

    def wait_done(self, run: str) -> None:
        """Until the run has ended, and it must have ended well."""
        wait_for(lambda: self.get(f"/v1/runs/{run}")["ended_at"])
        ended, rounds = self.get(f"/v1/runs/{run}"), self.rounds(run)
        assert ended["state"] == "done", (ended, [(r["index"], r["state"], r["reason"]) for r in rounds])

    def sql(self, query: str) -> list[list[Any]]:
        """Rows of the ledger's database."""
        code = (
            "import json, sqlalchemy as sa\n"
            "engine = sa.create_engine(open('/secrets/ledger.url').read().strip())\n"
            f"with engine.connect() as link: print(json.dumps([list(r) for r in link.execute(sa.text({query!r}))]))"
        )
        rows: list[list[Any]] = json.loads(self.python("supervisor", code))
        return rows

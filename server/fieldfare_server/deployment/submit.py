"""Hand a run to a Flower federation with Flower's own command line, and ask the ledger how it ended.

Flower's programs are found next to the interpreter, run without a shell, and are told not to contact anybody
outside. A plan travels as text in the run configuration.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from fieldfare import errors
from fieldfare.errors import BadInput, FieldfareError, Interrupted
from fieldfare_flower import QUIET, logs
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import RunView

# Seconds for which a followed run may be without a coordinator: longer than the supervisor's longest pause.
PATIENCE = 900.0
# The same for a run that its coordinator handed back with a reason, which the next one may meet again.
HANDED_BACK = 120.0
# Seconds between two looks at a followed run.
LOOK = 2.0

# How the traceback of a coordinator that refused a run ends: the kind, what, why, and the nearest.
_REFUSED = re.compile(r"^fieldfare\.errors\.(\w+): (.+?): (.+?)(?: Nearest allowed: (.+)\.)?$", re.MULTILINE)

# Text as TOML, which knows no halves of a character.
_toml = partial(json.dumps, ensure_ascii=False)


class FlowerError(FieldfareError):
    """One of Flower's programs failed; the message quotes the end of its output."""


def program(name: str) -> str:
    """Return the path of one of Flower's programs. Raises `FlowerError` where it is not installed."""
    # This environment's first: what is first on the PATH may be another Flower.
    sibling = Path(sys.executable).parent / name
    path = str(sibling) if sibling.exists() else shutil.which(name)
    if path is None:
        raise FlowerError(f"{name} is not installed: pip install 'fieldfare[simulation]'")
    return path


def environment(flwr_home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return variables for a process of Flower: quiet, with its own home, and with its sibling programs on the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **QUIET, "FLWR_HOME": str(flwr_home), "PATH": path, **(extra or {})}


def tail(text: str, lines: int = 15) -> str:
    """Return the last lines of a program's output, for an error message."""
    return "\n".join(text.strip().splitlines()[-lines:])


def write_connection(flwr_home: Path, address: str, root_certificates: Path | None) -> None:
    """Tell the `flwr` command where the SuperLink is that it calls "federation". Without certificates: in clear.

    Args:
        flwr_home: the directory of Flower's settings, in which the file is written.
        address: HOST:PORT of the SuperLink's control API.
        root_certificates: a PEM file, or None.
    """
    flwr_home.mkdir(parents=True, exist_ok=True)
    trust = "insecure = true" if root_certificates is None else f"root-certificates = {_toml(str(root_certificates))}"
    (flwr_home / "config.toml").write_text(
        f'[superlink]\ndefault = "federation"\n[superlink.federation]\naddress = {_toml(address)}\n{trust}\n'
    )


def submit(
    work: Path,
    address: str,
    *,
    plan: str = "",
    task: str = "",
    run_id: str = "",
    resume: str = "",
    root_certificates: Path | None = None,
    federation_config: str = "",
    stream: bool = True,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> str:
    """Start a run with `flwr run` on the SuperLink at `address` (host:port); returns the command's output.

    Args:
        work: a directory for the app, the connection and Flower's own state.
        plan, run_id: TOML text and id of a new run; or `resume`: the id of the run to continue.
        task: what nodes train whose own configuration does not say.
        root_certificates: the federation's CA; without it the connection is not encrypted.
        federation_config: settings of Flower's simulation.
        stream: follow the run to its end, else return as soon as it is submitted.
        timeout: seconds that the command may take.

    Raises `FlowerError` where the command fails or takes too long.
    """
    app, flwr_home = work / "app", work / "flwr"
    app.mkdir(parents=True, exist_ok=True)
    # The app that `flwr run` expects as a directory: no code, so that a federation runs what its image holds.
    pyproject = resources.files("fieldfare_server").joinpath("deployment/flower_app/pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(pyproject)
    write_connection(flwr_home, address, root_certificates)
    values = {"plan": plan, "task": task, "run-id": run_id, "resume": resume}
    config = work / "run-config.toml"
    config.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in values.items()))
    command = [program("flwr"), "run", str(app), "federation", "--run-config", str(config)]
    if federation_config:
        command += ["--federation-config", federation_config]
    if stream:
        command.append("--stream")
    try:
        done = subprocess.run(  # noqa: S603  (a fixed program, no shell)
            command, env=environment(flwr_home, env), capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise FlowerError(f"flwr run did not end within {timeout} s: {tail(str(error.stdout))}") from None
    output = logs.as_text(done.stdout + done.stderr)
    if done.returncode != 0:
        raise FlowerError(f"flwr run failed: {tail(output)}")
    return output


def submit_and_follow(
    home: StateDirectory, address: str, tell: Callable[[str], None], *, run_id: str, detach: bool, **terms: Any
) -> None:
    """Start a run as `submit` does, from a directory of its own, and follow it in the ledger to its end.

    Args:
        tell: as of `follow`.
        detach: return as soon as it is submitted.
        terms: further arguments of `submit`.

    Raises as `follow`; as `submit` where it is detached.
    """
    tell(f"run {run_id}: handed to {address}")  # whoever ends this command knows what to resume
    with tempfile.TemporaryDirectory(prefix="fieldfare-") as work:
        try:
            output = submit(Path(work), address, run_id=run_id, stream=not detach, **terms)
        except FlowerError as error:
            # The stream ends with its coordinator, or with the connection; the run need not.
            if detach:
                raise
            output = str(error)
    if not detach:
        follow(home, run_id, output, tell)


def require_ended(home: StateDirectory, run_id: str, output: str) -> None:
    """Ask the ledger whether a run that is over for Flower has ended well: its exit status does not tell.

    output: what `submit` returned; errors quote its end. Raises as `follow`, and `Interrupted` where the run can be
    resumed.
    """
    with Ledger.open(home.ledger) as ledger:
        run = _begun(ledger, run_id, output)
    if run.ended_at is None:
        hint = f"Continue it with --resume {run_id}. Flower said: {tail(output)}"
        raise Interrupted(f"run {run_id} is {run.state}. {hint}")
    _require_no_failure(run, output)


def follow(
    home: StateDirectory,
    run_id: str,
    output: str,
    tell: Callable[[str], None],
    *,
    patience: float = PATIENCE,
    pause: float = LOOK,
) -> None:
    """Follow a run in the ledger to its end, however many coordinators it has on its way there.

    A coordinator that dies ends Flower's run and not ours: the supervisor resumes it, minutes later.

    Args:
        output: what Flower said of the first coordinator; errors quote its end.
        tell: is told what changes, one line at a time.
        patience: seconds for which a run may stand still, without a coordinator, before this gives up.
        pause: seconds between two looks.

    Raises:
        Refused: its coordinator refused it before it began, of the same kind; `BudgetRefused` also where the budget
            was exhausted before its end.
        FlowerError: the run never began otherwise, or failed.
        Interrupted: no coordinator resumed it. It can be resumed.
    """
    still_since, told = time.monotonic(), ""
    with Ledger.open(home.ledger) as ledger:
        while True:
            run = _begun(ledger, run_id, output)
            where = f"{run.next_round} of {run.rounds} rounds"
            if run.ended_at is not None:
                _require_no_failure(run, output)
                tell(f"run {run_id}: {run.state}, {where}")
                return
            stands_still = run.state == "interrupted"
            if not stands_still:
                still_since = time.monotonic()
            elif time.monotonic() - still_since >= (min(patience, HANDED_BACK) if run.message else patience):
                why = f"no coordinator holds it, and none has resumed it. {run.message}".strip()
                hint = f"Continue it with --resume {run_id}. Flower said: {tail(output)}"
                raise Interrupted(f"run {run_id} is interrupted after {run.next_round} rounds: {why} {hint}")
            line = f"at {where}, its coordinator is gone; waiting for the supervisor" if stands_still else where
            if line != told:
                tell(f"run {run_id}: {line}")
                told = line
            time.sleep(pause)


def _begun(ledger: Ledger, run_id: str, output: str) -> RunView:
    try:
        return ledger.run(run_id)
    except BadInput:
        for name, *parts in _REFUSED.findall(output)[-1:]:
            if isinstance(kind := getattr(errors, name, None), type) and issubclass(kind, errors.Refused):
                raise kind(*parts) from None
        raise FlowerError(f"the run never started: {tail(output)}") from None


def _require_no_failure(run: RunView, output: str) -> None:
    if run.state == "exhausted":
        raise errors.BudgetRefused(f"run {run.id}, after {run.next_round} rounds", run.message)
    if run.state == "failed":
        raise FlowerError(f"run {run.id} failed: {run.message or tail(output)}")

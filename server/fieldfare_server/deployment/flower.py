"""Start a run on a Flower federation: a real one, or a simulated one (Ray) that is started and stopped here.

Flower's own programs do the work; they are found beside the interpreter, run without a shell, and are told not to
call anybody outside. A plan travels as text in the run configuration.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path

from fieldfare.errors import BadInput, FieldfareError, Interrupted
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger.runs import new_run_id
from fieldfare_server.ledger.states import ACTIVE

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Flower and Ray would call out otherwise."""


class FlowerError(FieldfareError):
    """One of Flower's programs failed; the message holds what it said."""


def program(name: str) -> str:
    """The path of one of Flower's programs. Raises `FlowerError`."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise FlowerError(f"{name} is not installed: pip install 'fieldfare[simulation]'")
    return found


def environment(flwr_home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """For a Flower process: quiet, with its own home, and able to find its sibling programs."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **QUIET, "FLWR_HOME": str(flwr_home), "PATH": path, **(extra or {})}


def write_app(directory: Path) -> Path:
    """The Flower app that `flwr run` wants as a directory: one pyproject.toml, no code."""
    directory.mkdir(parents=True, exist_ok=True)
    text = resources.files("fieldfare_server").joinpath("deployment/flower_app/pyproject.toml").read_text()
    (directory / "pyproject.toml").write_text(text)
    return directory


def write_connection(flwr_home: Path, name: str, address: str, root_certificates: Path | None) -> None:
    """Tell the `flwr` command where a SuperLink is. Without certificates the connection is not encrypted."""
    flwr_home.mkdir(parents=True, exist_ok=True)
    secure = "insecure = true" if root_certificates is None else f"root-certificates = {_toml(str(root_certificates))}"
    (flwr_home / "config.toml").write_text(
        f"[superlink]\ndefault = {_toml(name)}\n[superlink.{name}]\naddress = {_toml(address)}\n{secure}\n"
    )


def _toml(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{quoted}"'


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
    """`flwr run`: hand a plan (TOML text) to the SuperLink at `address`; returns what the command said.

    `work`: a directory for the app, the connection and Flower's own state. Raises `FlowerError` where it fails.
    """
    app, flwr_home = write_app(work / "app"), work / "flwr"
    write_connection(flwr_home, "federation", address, root_certificates)
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
        raise FlowerError(f"flwr run did not end within {timeout} s: {_tail(str(error.stdout))}") from None
    said = done.stdout + done.stderr
    if done.returncode != 0:
        raise FlowerError(f"flwr run failed: {_tail(said)}")
    return said


def register_node(address: str, root_certificates: Path, public_key: Path, timeout: float = 60.0) -> str:
    """Admit a node by its public key; returns "registered" or "was registered". Raises `FlowerError`."""
    with tempfile.TemporaryDirectory(prefix="fieldfare-") as scratch:
        home = Path(scratch)
        write_connection(home, "federation", address, root_certificates)
        command = [program("flwr"), "supernode", "register", str(public_key), "federation", "--name", public_key.stem]
        try:
            done = subprocess.run(  # noqa: S603  (a fixed program, no shell)
                command, env=environment(home), capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise FlowerError(f"the SuperLink at {address} did not answer within {timeout:g} s") from None
    said = done.stdout + done.stderr
    if done.returncode == 0:
        return "registered"
    if "already" in said.lower():
        return "was registered"
    raise FlowerError(f"node {public_key.stem} could not be registered: {_tail(said)}")


def revoke_node(address: str, root_certificates: Path, public_key: Path) -> int:
    """Remove every node with this public key (an OpenSSH file) from the federation; returns how many there were.

    The SuperLink refuses the key from then on. Raises `FlowerError` where it cannot be asked, `BadInput` on a file that
    holds no such key.
    """
    # Flower's own `supernode unregister` wants an id, and its list shows no keys to find it by.
    import httpx
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.proto.control_pb2 import ListNodesRequest, UnregisterNodeRequest
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    try:
        key = load_ssh_public_key(public_key.read_bytes())
    except (OSError, ValueError):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadInput(f"public key {str(public_key)!r}", "cannot be read as one.", "the node's NAME.pub")
    wanted = public_key_to_bytes(key)
    client = ControlHttpClient.from_server_address(address, False, str(root_certificates), ())
    try:
        nodes = client.ListNodes(ListNodesRequest()).nodes_info
        found = [node.node_id for node in nodes if node.public_key == wanted and node.status != "unregistered"]
        for node in found:
            client.UnregisterNode(UnregisterNodeRequest(node_id=node))
    except httpx.HTTPError as error:
        raise FlowerError(f"the SuperLink at {address} did not remove {public_key.stem}: {error}") from None
    finally:
        client.close()
    return len(found)


def _tail(text: str, lines: int = 15) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])


@contextlib.contextmanager
def superlink(work: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """A SuperLink on a free loopback port while inside; yields its address. Its log goes to `work`/superlink.log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    work.mkdir(parents=True, exist_ok=True)
    command = [program("flower-superlink"), "--insecure", "--host", "127.0.0.1", "--port", str(port), *arguments]
    with (work / "superlink.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  (a fixed program, no shell)
            command, env=environment(work / "flwr", env), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", process, work / "superlink.log")
            yield f"127.0.0.1:{port}"
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes], patience: float = 10.0) -> None:
    """End a process and what it started: politely, then not.

    Flower's programs start others in sessions of their own, and those outlive them: a coordinator would go on training.
    """
    groups = _groups_below(process.pid)
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    deadline = time.monotonic() + patience
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGTERM)
            while time.monotonic() < deadline:
                time.sleep(0.1)
                os.killpg(group, 0)
            os.killpg(group, signal.SIGKILL)


def _groups_below(pid: int) -> set[int]:
    """Process groups of a process's children other than its own; none where the system does not tell (no /proc)."""
    groups: set[int] = set()
    with contextlib.suppress(OSError):  # what ends meanwhile needs no ending
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            groups |= {os.getpgid(int(child)) for child in listed.read_text().split()}
        groups -= {os.getpgid(pid), os.getpgid(0)}
    return groups


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path, patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310  (loopback)
            if reply.status == 200:
                return
        time.sleep(0.1)
    raise FlowerError(f"the SuperLink did not start: {_tail(log.read_text(errors='replace'))}")


def run_flower_simulation(home: StateDirectory, path: Path | None, resume: str, nodes: int, run_id: str = "") -> str:
    """Run a plan file under Flower's simulation (Ray) with `nodes` SuperNodes; returns the run's id.

    `run_id`: the id that a new run gets; a random one without it. Raises `FlowerError` with the end of Flower's log
    where the run did not reach its end, and `Interrupted` after Ctrl-C, when the run's coordinator is gone.
    """
    text = path.read_text() if path else ""
    task = str(tomllib.loads(text).get("run", {}).get("task", "")) if text else _task_of(home, resume)
    run_id = resume or run_id or new_run_id()
    env = {
        "FIELDFARE_HOME": str(home.root),
        "FIELDFARE_LEDGER": home.ledger,
        "FIELDFARE_NODE_AUTH": "simulated",
        "OMP_NUM_THREADS": "1",
    }
    try:
        with (
            tempfile.TemporaryDirectory(prefix="fieldfare-", ignore_cleanup_errors=True) as scratch,
            superlink(Path(scratch), "--simulation", "--disable-runtime-dependency-installation", env=env) as address,
        ):
            said = submit(
                Path(scratch),
                address,
                plan=text,
                task=task,
                run_id=run_id,
                resume=resume,
                federation_config=f"num-supernodes={nodes} client-resources-num-cpus=1",
                env=env,
            )
    except KeyboardInterrupt:
        _give_back(home, run_id)
        raise Interrupted(f"run {run_id} was interrupted. Continue it with --resume {run_id}.") from None
    require_ended(home, run_id, said)
    return run_id


def _give_back(home: StateDirectory, run_id: str) -> None:
    """Say in the ledger that a run stands still, once its coordinator is gone."""
    from fieldfare_server.files.checkpoint import RunFiles, key_commitment
    from fieldfare_server.ledger import Ledger, this_process

    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        try:
            ledger.run(run_id)
        except BadInput:
            raise FlowerError(f"run {run_id} was interrupted before it began: nothing was charged.") from None
        key = RunFiles(home.root, run_id, keep=2).key()
        holder = f"interrupt@{this_process()}"
        ledger.resume_run(
            run_id, key_commitment=key_commitment(key), holder=holder, wait=home.lease_patience
        ).hand_back("interrupted")


def _task_of(home: StateDirectory, run_id: str) -> str:
    from fieldfare.plan import Plan
    from fieldfare_server.ledger import Ledger

    with Ledger.open(home.ledger) as ledger:
        return Plan.stored(ledger.run(run_id).plan).run.task


def require_ended(home: StateDirectory, run_id: str, said: str) -> None:
    """Raise where a run that Flower says is over is not over for the ledger."""
    from fieldfare_server.ledger import Ledger

    with Ledger.open(home.ledger) as ledger:
        try:
            state = ledger.run(run_id).state
        except BadInput:
            raise FlowerError(f"the run never started: {_tail(said)}") from None
    if state in ACTIVE:
        raise Interrupted(f"run {run_id} is {state}. Continue it with --resume {run_id}. Flower said: {_tail(said)}")
    if state == "failed":
        raise FlowerError(f"run {run_id} failed: {_tail(said)}")

"""Run a plan under Flower's simulation (Ray), on a SuperLink that is started and stopped here."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fieldfare.errors import BadInput, Interrupted, NotFound, Unsupported, WrongForm
from fieldfare.plan import Plan
from fieldfare_server.deployment.submit import FlowerError, environment, program, require_ended, submit, tail
from fieldfare_server.files.checkpoint import RunFiles, key_commitment
from fieldfare_server.files.home import StateDirectory, scratch_folder
from fieldfare_server.ledger import Ledger, new_run_id, this_process
from fieldfare_server.ledger.holders import SIMULATION


@dataclass(frozen=True)
class Ray:
    """Where Flower's simulation runs. A cluster gets as many actors as its machines have room for, each on
    its own.

    Args:
        address: HOST:PORT of a Ray cluster that is there; empty: one is started here, and stopped with the
            run. Every machine of a cluster has the same Fieldfare, task and data.
        cpus: cores of an actor, at least 1.
        gpus: GPUs of an actor; a fraction where several share one.
    """

    address: str = ""
    cpus: int = 1
    gpus: float = 0.0

    def require(self) -> None:
        """Raise `BadInput` where `address` is not one, or nothing listens there."""
        if not self.address:
            return
        host, _, port = self.address.removeprefix("ray://").rpartition(":")
        what = f"--ray-address {self.address}"
        if self.address.startswith("ray://"):
            raise Unsupported(what, "is one of Ray's client server: the actors need the cluster's own.", f"{host}:6379")
        if not host or not port.isdecimal():
            raise WrongForm(what, "is not HOST:PORT.", "127.0.0.1:6379, as `ray start --head` prints it")
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except (OSError, OverflowError) as error:
            why = f"nothing answers there ({error})."
            raise NotFound(what, why, "start it: ray start --head --port=6379") from None


def run_flower_simulation(
    home: StateDirectory, path: Path | None, resume: str, nodes: int, run_id: str = "", ray: Ray = Ray()
) -> str:
    """Run the plan file at `path`, or continue the run `resume`, with `nodes` SuperNodes; returns the run's
    id.

    Args:
        home: of the run.
        path: the plan file of a new run.
        resume: or the run to continue.
        nodes: how many nodes the users are spread over; actors take them as they are free.
        run_id: the id that a new run gets; without it a random one.
        ray: where it runs.

    Raises:
        BadInput: there is no such cluster.
        FlowerError: the run fails; the message has the end of Flower's output.
        Interrupted: after Ctrl-C, when the run's coordinator is gone.
    """
    ray.require()
    if path:
        text, beside = path.read_text(), str(path.absolute().parent)
        task = Plan.from_toml(text).task_reference
    else:
        with Ledger.open(home.ledger) as ledger:
            text, beside, task = "", "", Plan.stored(ledger.run(resume).plan).task_reference
    run_id = resume or run_id or new_run_id()
    actors = f"client-resources-num-cpus={ray.cpus} client-resources-num-gpus={ray.gpus}"
    env = {
        "FIELDFARE_HOME": str(home.root),
        "FIELDFARE_LEDGER": home.ledger,
        "FIELDFARE_NODE_AUTH": "simulated",
        "OMP_NUM_THREADS": "1",
        **({"RAY_ADDRESS": ray.address} if ray.address else {}),
        # Flower's processes work in other directories, and a task may be a module of this one, or lie beside its plan.
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), os.getcwd(), beside))),
    }
    try:
        with (
            scratch_folder() as scratch,
            superlink(Path(scratch), "--simulation", "--disable-runtime-dependency-installation", env=env) as address,
        ):
            output = submit(
                Path(scratch),
                address,
                plan=text,
                task=task,
                run_id=run_id,
                resume=resume,
                federation_config=f"num-supernodes={nodes} {actors}",
                env=env,
            )
    except KeyboardInterrupt:
        _mark_interrupted(home, run_id)
        raise Interrupted(f"run {run_id} was interrupted. Continue it with --resume {run_id}.") from None
    require_ended(home, run_id, output)
    return run_id


def _mark_interrupted(home: StateDirectory, run_id: str) -> None:
    """Record in the ledger that a run stands still. Its coordinator was killed, and did not."""
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        try:
            ledger.run(run_id)
        except BadInput:
            raise FlowerError(f"run {run_id} was interrupted before it began: nothing was charged.") from None
        key = RunFiles(home.root, run_id, keep=2).key()
        holder = f"{SIMULATION}@{this_process()}"
        handle = ledger.resume_run(run_id, key_commitment=key_commitment(key), holder=holder, wait=home.lease_patience)
        handle.hand_back("interrupted")


@contextlib.contextmanager
def superlink(work: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run an insecure SuperLink on a free loopback port; yields its address. Its log is `work`/superlink.log."""
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
            _wait_until_healthy(f"http://127.0.0.1:{port}/health", process, work / "superlink.log")
            yield f"127.0.0.1:{port}"
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes], patience: float = 10.0) -> None:
    """End a process and its children: ask first, kill after `patience` seconds.

    Flower's programs start others in new sessions, which outlive them: a coordinator would go on training.
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
                os.killpg(group, 0)  # raises once the group is gone
            os.killpg(group, signal.SIGKILL)


def _groups_below(pid: int) -> set[int]:
    """Return process groups of a process's children other than its own; empty where there is no /proc."""
    groups: set[int] = set()
    with contextlib.suppress(OSError):  # a child may end while it is looked at
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            groups |= {os.getpgid(int(child)) for child in listed.read_text().split()}
        groups -= {os.getpgid(pid), os.getpgid(0)}
    return groups


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path, patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310  (loopback)
            if reply.status == 200:
                return
        time.sleep(0.1)
    raise FlowerError(f"the SuperLink did not start: {tail(log.read_text(errors='replace'))}")

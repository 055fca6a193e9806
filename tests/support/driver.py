"""A small coordinator: the real one's ledger and checkpoint steps, in their order, on a toy model.

`live` is one life of the process. It starts or resumes the run, and appends to a transcript what leaves the process:
`sent` when nodes would get a round, `released` when a model could be seen. Run it in a forked child and kill it.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.accounting import PrivacyLoss
from fieldfare_server import faults
from fieldfare_server.evidence.verify import DueCharge
from fieldfare_server.files.checkpoint import RunFiles, key_commitment
from fieldfare_server.ledger import Ledger, NewRun, OpenRound, Outcome, RunHandle, this_process
from support.ledgers import PLAN, digest

ROUNDS = 4
RUN = "run"
KEY = hashlib.sha256(b"a key for tests").digest()


@dataclass(frozen=True)
class Place:
    """Where a run lives."""

    url: str
    root: Path
    random_replies: bool = False
    """Whether replies differ every time they are asked for, as real ones do; otherwise they follow from the round."""

    @property
    def transcript(self) -> Path:
        return self.root / "transcript"

    def lines(self) -> list[dict[str, Any]]:
        if not self.transcript.exists():
            return []
        return [json.loads(line) for line in self.transcript.read_text().splitlines()]


def charge(plan_json: str, strategy: object):  # type: ignore[no-untyped-def]
    """mu^2 = 0.04 x the largest participation of any user so far: `verify` recomputes with it."""
    assert plan_json == PLAN
    times: Counter[int] = Counter()

    def cumulative(index: int, users: NDArray[np.int64]) -> PrivacyLoss:
        times.update(users.tolist())
        return PrivacyLoss(mu_squared=0.04 * max(times.values()), sampled=())

    return DueCharge(cumulative)


def prepare(place: Place) -> None:
    """Make the ledger with its population, as an administrator does before any run."""
    place.root.mkdir(parents=True, exist_ok=True)
    with Ledger.open(place.url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")


def live(place: Place) -> None:
    """One life: to the end of the run, unless a fault ends it."""
    with Ledger.open(place.url, head_file=place.root / "head.json", coordinator=True, patience=5.0) as ledger:
        store = RunFiles(place.root, RUN, keep=2)
        handle = _begin(ledger, store)
        if handle is None:
            return
        with handle:
            params = torch.zeros(3)
            params = _settle(handle, store, params)
            if handle.checkpoint is not None:
                params = store.latest_committed(handle.checkpoint)[0]["params"]
                _release(place, handle, params)
            while handle.next_round < ROUNDS:
                params = _round(place, handle, store, params)
            handle.finish("done")


def _begin(ledger: Ledger, store: RunFiles) -> RunHandle | None:
    states = {run.id: run.state for run in ledger.runs().items}
    if states.get(RUN) == "done":
        return None
    if not (store.directory / "noise.key").exists():
        store.create(KEY)
    key = store.key()
    if RUN in states:
        return ledger.resume_run(RUN, key_commitment=key_commitment(key), holder=this_process())
    return ledger.start_run(
        NewRun(
            PLAN,
            digest(PLAN),
            "people",
            ROUNDS,
            PrivacyLoss(mu_squared=0.04 * ROUNDS, sampled=()),
            noise_source="secure-box-muller",
            key_commitment=key_commitment(key),
            trust_node_ids=False,
            id=RUN,
        ),
        holder=this_process(),
    )


def _settle(handle: RunHandle, store: RunFiles, params: torch.Tensor) -> torch.Tensor:
    opened = handle.open_round_pending()
    if opened is None:
        return params
    pending = store.pending()
    if pending is not None and (pending.round, pending.meta["attempt"]) == (opened.index, opened.attempt):
        _commit(handle, store, opened, pending.digest, pending.meta)
        return pending.tensors["params"]
    store.discard()
    handle.void_round(opened, "crash")
    return params


def _round(place: Place, handle: RunHandle, store: RunFiles, params: torch.Tensor) -> torch.Tensor:
    index = handle.next_round
    users = handle.register_users(np.arange(index, index + 4, dtype=np.uint64))
    faults.point("strategy.selected")
    opened = handle.open_round(users)
    _write_line(place, "sent", round=index, attempt=opened.attempt)
    faults.point("strategy.sent")
    if index == 1 and opened.attempt == 0:
        handle.void_round(opened, "too few reports", reports=1)
        return params
    reply = np.frombuffer(os.urandom(3), np.uint8) if place.random_replies else np.full(3, index + 1)
    faults.point("strategy.aggregated")
    total = torch.from_numpy(reply.astype(np.float32)) + _noise(opened.noise_row)
    faults.point("strategy.privatised")
    new = params + total
    most = max(len(p) + 1 for p in handle.patterns(users))
    spent = PrivacyLoss(mu_squared=max(handle.spent.mu_squared, 0.04 * most), sampled=())
    meta = {"attempt": opened.attempt, "participants": users.tolist(), "spent": spent.to_json()}
    name = store.write(index, {"params": new, "sum": total, "big": torch.zeros(20_000)}, meta)
    _commit(handle, store, opened, name, meta)
    _release(place, handle, new)
    faults.point("strategy.released")
    return new


def _commit(handle: RunHandle, store: RunFiles, opened: OpenRound, name: str, meta: dict[str, Any]) -> None:
    spent = PrivacyLoss.from_json(meta["spent"])
    handle.commit_round(opened, Outcome(meta["participants"], spent, {}, {}, len(meta["participants"])), name)
    store.promote(name)


def _noise(row: int) -> torch.Tensor:
    """Stands in for row `row` of B z: a function of the key and the row alone."""
    seed = int.from_bytes(hashlib.sha256(KEY + row.to_bytes(4, "little")).digest()[:4], "little")
    return torch.from_numpy(np.random.default_rng(seed).normal(size=3).astype(np.float32))


def _release(place: Place, handle: RunHandle, params: torch.Tensor) -> None:
    index = handle.next_round - 1
    _write_line(
        place, "released", round=index, noise_row=index, params=params.tolist(), mu_squared=handle.spent.mu_squared
    )


def _write_line(place: Place, what: str, **values: Any) -> None:
    line = json.dumps({"what": what, **values}) + "\n"
    descriptor = os.open(place.transcript, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def fork_and_live(place: Place, fault: str = "") -> int:
    """One life in a child process with `fault` armed; its exit status, negative for the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, 2)
            signal.alarm(60)
            faults.load({faults.VARIABLE: fault})
            live(place)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

"""What the end of a run leaves on disk: its model. Key, noise state and participants are destroyed.

With the key, or with a checkpoint's noise buffers, the released models give back the clipped sums of the
users. So as soon as the ledger says that a run has ended, its files go, and the journal says that they are
gone. The ledger keeps the commitment to the key. A crash between the two leaves files of an ended run: the
next begin, resume or verify on this home removes them, and the doctor names them. Backups are out of reach:
see deploy/README.md.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from fieldfare.atomic import replace_file
from fieldfare.errors import BadInput, CheckpointError, FieldfareError, NotNow
from fieldfare.lazily import torch
from fieldfare.plan import Plan
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.events.charges import ChargeCarried
from fieldfare_server.ledger.views import RunView
from fieldfare_server.ledger.watch import newest_row

log = logging.getLogger("fieldfare.session")
Held = TypeVar("Held", bound="dict[str, torch.Tensor] | None")

# The name of the one tensor of a checkpoint's model, and of a model whose task could not be loaded.
FLAT = "params"


def write_model(files: RunFiles, tensors: Mapping[str, torch.Tensor]) -> Path:
    """Write the model of a run, durably, for everyone to read; returns its path."""
    path = files.directory / "model.safetensors"
    from safetensors.torch import save  # imports PyTorch

    replace_file(path, save({name: value.contiguous() for name, value in tensors.items()}), mode=0o644)
    return path


def left_behind(home: StateDirectory, ledger: Ledger) -> list[str]:
    """Return the ended runs whose key or checkpoints are still in `home`."""
    ended = []
    for directory in sorted(home.root.iterdir()) if home.root.is_dir() else ():
        if directory.is_dir() and not directory.name.startswith(".") and RunFiles(home.root, directory.name).secrets():
            try:
                has_ended = ledger.run(directory.name).ended_at is not None
            except BadInput:
                # No run of this ledger else: not ours to destroy.
                has_ended = newest_row(ledger, directory.name, ChargeCarried.action) is not None
            if has_ended:
                ended.append(directory.name)
    return ended


def destroy_left_behind(home: StateDirectory, ledger: Ledger, actor: str) -> list[str]:
    """Destroy what a crash, an abandoned run or an older version left of ended runs; returns their ids.

    Raises `CheckpointError` where files of a run cannot be destroyed, after those of all others.
    """
    destroyed: list[str] = []
    failure: Exception | None = None
    for run_id in left_behind(home, ledger):
        try:
            destroy(home, ledger, run_id, actor)
            destroyed.append(run_id)
        except (FieldfareError, OSError) as error:
            failure = error
            log.error("run %s has ended, and its key or checkpoints are still here: %s", run_id, error)
    if failure is not None:
        raise CheckpointError("files of ended runs", f"they cannot be destroyed: {failure}") from failure
    return destroyed


def destroy(home: StateDirectory, ledger: Ledger, run_id: str, actor: str) -> None:
    """Destroy key, noise state and checkpoints of the ended run `run_id`; first its model is written, if need be.

    Raises:
        BadInput: the run has not ended.
        CheckpointError: its last model is in a checkpoint that cannot be read. Nothing is destroyed then.
    """
    files = RunFiles(home.root, run_id)
    # A run of an earlier format that gave way to a charge when the ledger was converted.
    if newest_row(ledger, run_id, ChargeCarried.action) is not None:
        rounds = files.committed_rounds()
        if rounds and not (files.directory / "model.safetensors").exists():
            write_model(files, {FLAT: files.latest_committed(rounds[max(rounds)])[0][FLAT]})
        files.destroy()
        return
    run = ledger.run(run_id)
    if run.ended_at is None:
        raise NotNow(f"the key of run {run_id}", f"the run is {run.state}; without its key it cannot be resumed.")
    if not files.secrets():
        return
    if not (files.directory / "model.safetensors").exists():
        if run.checkpoint is not None and not files.holds(run.checkpoint):
            log.warning("run %s has ended, and its newest checkpoint is not here: no model is left of it", run_id)
        else:
            # Where not a round was committed: the initial model, which is public.
            params = None if run.checkpoint is None else {FLAT: files.latest_committed(run.checkpoint)[0][FLAT]}
            if (tensors := complete(run, files, params)) is not None:
                write_model(files, tensors)
    files.destroy()
    ledger.record_key_destroyed(run_id, actor=actor)


def complete(run: RunView, files: RunFiles, tensors: Held) -> dict[str, torch.Tensor] | Held:
    """Return the full state dict of a run's model, from one that holds less: parameters alone, or one flat vector.

    Args:
        tensors: what is held of the model; None for what it began with. Returned unchanged where the run's task
            cannot be loaded here.
    """
    from fieldfare_server.run.round.task_model import model_of  # imports Flower

    try:
        model = model_of(Plan.stored(run.plan), files.directory)
    except Exception:  # whatever the task's code raises: the run has ended, and its key is still here
        return tensors
    if tensors is None:
        return model.tensors(model.initial)
    if set(tensors) == {FLAT} and tensors[FLAT].shape == (model.schema.numel,):
        return model.tensors(tensors[FLAT])
    if set(tensors) == set(model.schema.names):
        return model.tensors(model.schema.flatten(tensors))
    return tensors

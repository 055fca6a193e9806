"""What the end of a run leaves on disk: its model. Key, noise state and participants are destroyed.

With the key, or with a checkpoint's noise buffers, the released models give back the clipped sums of the users. So as
soon as the ledger says that a run has ended, its files go, and the journal says that they are gone. The ledger keeps
the commitment to the key. A crash between the two leaves files of an ended run: the next begin, resume or verify on
this home removes them, and the doctor names them. Backups are out of reach: see deploy/README.md.
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from safetensors.torch import save

from fieldfare.errors import BadInput, FieldfareError
from fieldfare.plan import Plan
from fieldfare.schema import Schema
from fieldfare_server.files.atomic import replace_file
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import RunView
from fieldfare_server.run.task_model import TaskModel

log = logging.getLogger("fieldfare.session")


def write_model(files: RunFiles, params: torch.Tensor, schema: Schema | None) -> Path:
    """Write the model of a run, durably, for everyone to read; returns its path.

    schema: splits `params`, flat, into named tensors; None: it is written flat, as "params".
    """
    named = {"params": params} if schema is None else schema.split(params)
    path = files.directory / "model.safetensors"
    replace_file(path, save({name: value.clone().contiguous() for name, value in named.items()}), mode=0o644)
    return path


def left_behind(home: StateDirectory, ledger: Ledger) -> list[str]:
    """The ended runs whose key or checkpoints are still in `home`."""
    ended = []
    for directory in sorted(home.root.iterdir()) if home.root.is_dir() else ():
        if directory.is_dir() and not directory.name.startswith(".") and RunFiles(home.root, directory.name).secrets():
            try:
                run = ledger.run(directory.name)
            except BadInput:
                continue  # no run of this ledger: not ours to destroy
            if run.ended_at is not None:
                ended.append(run.id)
    return ended


def destroy_left_behind(home: StateDirectory, ledger: Ledger, actor: str) -> list[str]:
    """Destroy what a crash, an abandoned run or an older version left of ended runs; returns their ids."""
    runs = left_behind(home, ledger)
    for run_id in runs:
        destroy(home, ledger, run_id, actor)
    return runs


def destroy(home: StateDirectory, ledger: Ledger, run_id: str, actor: str) -> None:
    """Destroy key, noise state and checkpoints of the ended run `run_id`, its model first where there is none yet.

    Raises:
        BadInput: the run has not ended.
        CheckpointError: its last model is in a checkpoint that cannot be read. Nothing is destroyed then.
    """
    run, files = ledger.run(run_id), RunFiles(home.root, run_id)
    if run.ended_at is None:
        raise BadInput(f"the key of run {run_id}", f"the run is {run.state}; without its key it cannot be resumed.")
    if not files.secrets():
        return
    if run.checkpoint is not None and not (files.directory / "model.safetensors").exists():
        if files.holds(run.checkpoint):
            tensors, _ = files.latest_committed(run.checkpoint)
            write_model(files, tensors["params"], _schema(run))
        else:
            log.warning("run %s has ended, and its newest checkpoint is not here: no model is left of it", run_id)
    files.destroy()
    ledger.record_key_destroyed(run_id, actor=actor)


def _schema(run: RunView) -> Schema | None:
    """None where the run's task cannot be loaded here."""
    try:
        return TaskModel(Plan.stored(run.plan).task_reference).schema
    except (FieldfareError, ImportError):
        return None

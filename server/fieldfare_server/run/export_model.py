"""The released model of a run as one file that plain PyTorch loads."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fieldfare.atomic import replace_file
from fieldfare.errors import AlreadyThere, CheckpointError, NotFound, NotInstalled, Unsupported
from fieldfare.lazily import torch
from fieldfare.plan import Plan
from fieldfare.task import Task, load_task
from fieldfare.text import promised
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger.views import RunView
from fieldfare_server.run.ending import FLAT, complete
from fieldfare_server.run.round.task_model import model_of


@dataclass(frozen=True)
class ReleasedModel:
    """A committed model of one run."""

    run: RunView
    rounds: int  # how many committed rounds have changed it
    tensors: dict[str, torch.Tensor]  # the full state dict: trained, frozen and tied parameters and buffers


def released_model(home: StateDirectory, run: RunView, rounds: int | None = None) -> ReleasedModel:
    """Return the model of `run` after `rounds` committed rounds; None: after all that are committed.

    An ended run has its last model; a run under way has those of its newest checkpoints.

    Raises:
        BadInput: that model is not kept, or the run is not of this home.
        CheckpointError: its file is damaged.
    """
    files, last = RunFiles(home.root, run.id), run.next_round
    wanted = last if rounds is None else rounds
    path = files.directory / "model.safetensors"
    if path.exists() and wanted == last:
        try:
            from safetensors.torch import load_file  # imports PyTorch

            tensors = load_file(path)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"model {path}", f"it cannot be read ({error}).", "its backup") from None
        return ReleasedModel(run, last, complete(run, files, tensors))
    if wanted == 0:
        model = model_of(Plan.stored(run.plan), files.directory)
        return ReleasedModel(run, 0, model.tensors(model.initial))
    kept = {} if run.ended_at is not None else files.committed_rounds()
    if run.ended_at is None and run.checkpoint is not None and files.holds(run.checkpoint):
        kept[last] = run.checkpoint
    if wanted not in kept:
        held = sorted({*kept, *([last] if path.exists() or not kept else []), 0})
        why = f"that model is not kept: an ended run keeps its last one, a run under way its newest two ({home.root})."
        raise NotFound(f"--round {wanted} of run {run.id}", why, ", ".join(map(str, held)))
    tensors, _ = files.latest_committed(kept[wanted])
    return ReleasedModel(run, wanted, complete(run, files, {FLAT: tensors[FLAT]}))


def write_safetensors(model: ReleasedModel, path: Path) -> None:
    """Write the state dict, for `module.load_state_dict(safetensors.torch.load_file(path))`; no pickle.

    The header's metadata name the run, its rounds and what they cost. Each export of a model has the same bytes.
    """
    run = model.run
    note = {
        "format": "pt",  # transformers reads no file without it
        "fieldfare.run": run.id,
        "fieldfare.task": str(run.plan.get("run", {}).get("task", "")),
        "fieldfare.rounds": str(model.rounds),
        "fieldfare.epsilon-of-run": repr(run.held[1]),  # rounded it might be less
        "fieldfare.delta": promised(run.delta),
        "fieldfare.plan": run.plan_digest,
    }
    require_new(path)
    from safetensors.torch import save  # imports PyTorch

    ends = 8 + int.from_bytes((file := save(model.tensors, metadata=note))[:8], "little")
    header = json.loads(file[8:ends]) | {"__metadata__": note}  # safetensors has them in any order
    ordered = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    ordered += b" " * (-len(ordered) % 8)  # tensors begin at a multiple of 8
    replace_file(path, len(ordered).to_bytes(8, "little") + ordered + file[ends:], mode=0o644)


def write_onnx(model: ReleasedModel, path: Path) -> None:
    """Write the model as ONNX, with a free number of rows.

    Raises:
        BadInput: the packages are missing, the task cannot be loaded, or torch cannot export this model.
    """
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise NotInstalled("--format onnx", f"needs the package {missing[0]}.", "pip install 'fieldfare[onnx]'")
    require_new(path)
    task = load_task(Plan.stored(model.run.plan).task_reference)
    module = task.build_model()
    module.load_state_dict(model.tensors)
    inputs = _example(task)
    try:
        exported = torch.onnx.export(
            module.eval(), (inputs,), dynamo=True, dynamic_shapes=({0: torch.export.Dim("rows")},), verbose=False
        )
        assert exported is not None
        content = exported.model_proto.SerializeToString()
    except Exception as error:  # whatever torch cannot export: it names the part of the model
        raise Unsupported(
            "--format onnx", f"torch cannot export this model: {error}.", "--format safetensors"
        ) from error
    replace_file(path, content, mode=0o644)


def _example(task: Task) -> torch.Tensor:
    """Return zeros in the shape and dtype of two prepared rows; no user's values."""
    table: Any = task.users()
    inputs = task.prepare(table.rows(table.sizes.argmax().reshape(1)).columns)[0]
    return torch.zeros((2, *inputs.shape[1:]), dtype=inputs.dtype)


def require_new(path: Path) -> None:
    """Raise `BadInput` for a path where something is, or whose directory is not there."""
    if path.exists():
        raise AlreadyThere(f"--out {path}", "there is a file already.", "another name")
    if not path.absolute().parent.is_dir():
        raise NotFound(f"--out {path}", "its directory does not exist.", str(path.absolute().parent))

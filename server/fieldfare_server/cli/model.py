"""`fieldfare model`: the released model of a run, as a file for plain PyTorch or a directory for a model hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fieldfare_server.cli.command import CommandResult, on_home
from fieldfare_server.cli.output import out
from fieldfare_server.files.home import SHAREABLE, StateDirectory
from fieldfare_server.ledger import Ledger


@on_home
def model(
    directory: StateDirectory,
    run: Annotated[str, typer.Argument(metavar="RUN")],
    out_: Annotated[
        Path | None, typer.Option("--out", help="the new file or directory to write [model.FORMAT, in this directory]")
    ] = None,
    round_: Annotated[
        int | None, typer.Option("--round", min=0, help="after so many committed rounds; default all of them")
    ] = None,
    format_: Annotated[
        Literal["safetensors", "onnx", "hub"],
        typer.Option("--format", help="safetensors: the full state dict; hub: a directory with card and evidence"),
    ] = "safetensors",
) -> CommandResult:
    """Write the model of a run with all its parameters and buffers. It is released and charged: it may be
    shared.

    A file of torch.save is a pickle, which runs code when it is opened, so there is no such format.
    """
    from fieldfare_server.run.export_model import released_model, write_onnx, write_safetensors  # imports Flower

    to = out_ or Path(f"model.{format_}")
    # One snapshot: a round committed meanwhile must not show in half of a card.
    with Ledger.open(directory.ledger) as opened, opened.snapshot() as snapshot:
        view = snapshot.run(run)
        released = released_model(directory, view, round_)
        if format_ == "hub":
            from fieldfare_server.evidence.model_card import write_card  # imports PyTorch

            write_card(snapshot, directory, released, to)
        else:
            {"safetensors": write_safetensors, "onnx": write_onnx}[format_](released, to)

    def tell() -> None:
        out.print(f"{to}: the model of run {run} after {released.rounds} of {view.rounds} rounds.", markup=False)
        if format_ == "safetensors":
            out.print(f'Load it: model.load_state_dict(safetensors.torch.load_file("{to}"))', markup=False)
        out.print(SHAREABLE, markup=False)

    shown = {"run": run, "rounds": released.rounds, "format": format_, "file": str(to)}
    tensors = {name: list(value.shape) for name, value in released.tensors.items()}
    return CommandResult({**shown, "tensors": tensors}, tell)

"""`fieldfare head`: the key that signs the journal's head."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.atomic import make_file
from fieldfare.errors import AlreadyThere, Unreadable, WrongForm
from fieldfare.signatures import public_key
from fieldfare.signed_head import KEY_BYTES, SignedHead
from fieldfare_server.cli.administer import actor
from fieldfare_server.cli.command import command, on_home
from fieldfare_server.cli.output import print_outcome, print_text
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger

head = typer.Typer(no_args_is_help=True, help="The key that signs the journal's head.")


@head.command()
@on_home
def show(directory: StateDirectory) -> None:
    """Print the newest head that this home holds: one line, for nodes, witnesses and paper.

    A coordinator's new home begins to hold it here, so that nodes know its key before the first run.
    """
    file = directory.head_file
    if not file.exists():
        directory.prepare()
        Ledger.open(directory.ledger, head_file=file, coordinator=True).close()
    try:
        print_text(str(SignedHead.parse(file.read_text(encoding="ascii"))))  # as below
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"ledger head {file}", f"cannot be read ({error}).", "the coordinator's home") from None


@head.command()
@command
def new_key(file: Annotated[Path, typer.Argument(help="where the private key goes: keep it offline")]) -> None:
    """Make a key to keep offline; prints its public part, for `enrol`."""
    key = secrets.token_bytes(KEY_BYTES)
    try:
        make_file(file, key)
    except FileExistsError:
        raise AlreadyThere(f"key {file}", "there is a file of that name.", "another name") from None
    print_text(public_key(key))  # an answer, also where a job's output is its log


@head.command()
@on_home
def enrol(
    directory: StateDirectory,
    key: Annotated[str, typer.Argument(help="public key, 64 hex digits, as `new-key` printed it")],
) -> None:
    """Let a key that is kept offline name the head's next key, should the coordinator's directory be lost."""
    if len(key) != 2 * KEY_BYTES or not set(key) <= set("0123456789abcdef"):
        raise WrongForm(f"key {key[:80]!r}", "a public key has 64 hex digits.", "what `fieldfare head new-key` printed")
    with Ledger.open(directory.ledger, head_file=directory.head_file) as opened:
        opened.enrol_head_key(directory.head_file, key, actor=actor())
    print_outcome(f"Key {key} may name the next one.")


@head.command()
@on_home
def rotate(
    directory: StateDirectory,
    offline_key: Annotated[
        Path | None, typer.Option(help="an enrolled key's file: for a coordinator that takes over from a lost one")
    ] = None,
) -> None:
    """Replace the key that signs the head, while no coordinator works; a row of the journal tells nodes and
    witnesses.

    With --offline-key this home becomes the coordinator's, and holds the ledger's head as it is: nodes refuse
    an old one.
    """
    directory.prepare()
    offline = None
    if offline_key is not None:
        offline = offline_key.read_bytes()
        if len(offline) != KEY_BYTES:
            raise WrongForm(f"key {offline_key}", f"a private key has {KEY_BYTES} bytes.", "`fieldfare head new-key`")
    held = directory.head_file if offline is None else None
    with Ledger.open(directory.ledger, head_file=held, to_show=True) as opened:
        new = opened.rotate_head_key(directory.head_file, actor=actor(), offline=offline)
    print_outcome(f"The head is signed with key {new} from now on.")

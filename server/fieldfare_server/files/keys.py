"""How a run's noise key lies on disk: as it is, or wrapped by a command of yours (key service, hardware token).

A wrapped key protects backups of the state directory: without the wrapping key they hold no noise key. Set
FIELDFARE_KEY_WRAP and FIELDFARE_KEY_UNWRAP to JSON lists of arguments, for example `["age", "--encrypt",
"--recipient", "age1..."]`. No shell runs. The command reads standard input and writes standard
output: wrap takes 32 bytes, unwrap gives the same 32 bytes back.
"""

from __future__ import annotations

import hmac
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fieldfare.errors import CheckpointError, Conflict, WrongForm

KEY_BYTES = 32
_WRAPPED = b"fieldfare.wrapped-key.v1\n"
_SECONDS = 60.0


@dataclass(frozen=True)
class KeyFormat:
    """Turns a key into the content of its file and back: a command wraps it and another unwraps it; without, as it is.

    Raises `CheckpointError` if a command fails. Keys that were written plain are always read.
    """

    wrap_command: Sequence[str] = ()
    unwrap_command: Sequence[str] = ()

    def wrap(self, key: bytes) -> bytes:
        """Wrap a key, and unwrap at once what was wrapped: a key that does not come back would lose the run later."""
        if not self.wrap_command:
            return key
        content = _WRAPPED + _run("wrap", self.wrap_command, key)
        if not hmac.compare_digest(self.unwrap(content), key):
            raise CheckpointError("the noise key", "what FIELDFARE_KEY_UNWRAP gives back is another key.")
        return content

    def unwrap(self, content: bytes) -> bytes:
        """Return the key in a file's content. Raises `CheckpointError` where it is wrapped and no command unwraps."""
        if not content.startswith(_WRAPPED):
            return content
        if not self.unwrap_command:
            why, near = "it is wrapped.", "FIELDFARE_KEY_UNWRAP, as the run was begun with"
            raise CheckpointError("the noise key", why, near, code="key-wrapped")
        return _run("unwrap", self.unwrap_command, content.removeprefix(_WRAPPED))


def key_format(environment: Mapping[str, str] = os.environ) -> KeyFormat:
    """Read FIELDFARE_KEY_WRAP and FIELDFARE_KEY_UNWRAP. Raises `BadInput` unless both are set, or neither."""
    wrap, unwrap = (environment.get(f"FIELDFARE_KEY_{what}") for what in ("WRAP", "UNWRAP"))
    if not wrap and not unwrap:
        return KeyFormat()
    if not wrap or not unwrap:
        raise Conflict("FIELDFARE_KEY_WRAP and FIELDFARE_KEY_UNWRAP", "only one of them is set.", "both, or neither")
    return KeyFormat(_arguments("FIELDFARE_KEY_WRAP", wrap), _arguments("FIELDFARE_KEY_UNWRAP", unwrap))


def _arguments(name: str, value: str) -> list[str]:
    try:
        arguments = json.loads(value)
    except ValueError:
        arguments = None
    if not isinstance(arguments, list) or not arguments or not all(isinstance(part, str) for part in arguments):
        raise WrongForm(name, "must be a JSON list of a program and its arguments.", '["age", "--decrypt"]')
    return arguments


def _run(what: str, command: Sequence[str], content: bytes) -> bytes:
    """Return the command's output. What it prints on stderr is not repeated: it may hold anything."""
    try:
        done = subprocess.run(list(command), input=content, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckpointError(
            "the noise key", f"the command to {what} it failed ({type(error).__name__}).", code="key-command"
        ) from None
    if done.returncode or not done.stdout:  # nothing is no key, whatever the status says
        raise CheckpointError(
            "the noise key", f"the command to {what} it failed (status {done.returncode}).", code="key-command"
        )
    return done.stdout

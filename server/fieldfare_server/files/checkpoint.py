"""A run's files: its noise key, and checkpoints that exist whole or not at all.

    ROOT/RUN/SHA-256.strategy                what the run applies (`files.strategies`); not secret
    ROOT/RUN/initial.safetensors             what an app's own model began as (`run.round.own_model`); public
    ROOT/RUN/noise.key                       mode 0600 (`files.keys`); the ledger holds only a commitment to it
    ROOT/RUN/pending/DIGEST.safetensors      written before the ledger's commit: only this program may read it
    ROOT/RUN/closing/DIGEST.safetensors      a masked sum that is closed, until its round is committed
    ROOT/RUN/checkpoints/DIGEST.safetensors  promoted after the commit
    ROOT/RUN/noise/DIGEST.safetensors        a state of the noise, from which checkpoints that name it count rows

A checkpoint's name is the SHA-256 of its bytes, and the ledger's commit names it, so a torn, changed or
foreign file cannot be mistaken for it. Nothing is ever unpickled. When the run ends, `destroy` removes all of
them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfare.atomic import make_file, sync_directory
from fieldfare.errors import CheckpointError
from fieldfare.lazily import torch
from fieldfare.nonces import digest_of
from fieldfare_server import faults
from fieldfare_server.files.keys import KEY_BYTES, key_format

_SUFFIX = ".safetensors"
# torch's types by the names that safetensors gives them.
_DTYPES = {
    "torch.float64": "F64",
    "torch.float32": "F32",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.int64": "I64",
    "torch.int32": "I32",
    "torch.int16": "I16",
    "torch.int8": "I8",
    "torch.uint8": "U8",
    "torch.bool": "BOOL",
}
_BLOCK = 1 << 22
# Under "noise" in a checkpoint's metadata: the digest of the state that the noise's rows are counted from.
NOISE_BASE = "base"


def key_commitment(key: bytes) -> str:
    """Return the SHA-256, hex, of the noise key after a fixed prefix: it tells keys apart, and nothing else
    about them.
    """
    return hashlib.sha256(b"fieldfare.noise-key.v1\0" + key).hexdigest()


def model_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256, hex, of a model's tensors, whatever file they lie in: docs/certificate.md has it
    for strangers.
    """
    hasher = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        hasher.update(json.dumps([name, list(tensor.shape)], separators=(",", ":")).encode())
        hasher.update(_raw(tensor))
    return hasher.hexdigest()


def _raw(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data if flat.numel() else b"")


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: its round, tensors by name, and JSON metadata."""

    digest: str
    round: int
    tensors: dict[str, torch.Tensor]
    meta: dict[str, Any]


class RunFiles:
    """The files of one run below `root`. Only one coordinator writes them: the one that holds the ledger's lease."""

    def __init__(self, root: Path, run_id: str, *, keep: int | None = None) -> None:
        """keep: how many of the newest committed checkpoints to keep; None: all."""
        if not isinstance(run_id, str) or not run_id or run_id.startswith(".") or "/" in run_id or "\\" in run_id:
            raise CheckpointError(f"run id {run_id!r}", "it cannot name a directory.", code="run-id-no-directory")
        self.directory = Path(root) / run_id
        self._pending, self._committed = self.directory / "pending", self.directory / "checkpoints"
        self._noise, self._closing = self.directory / "noise", self.directory / "closing"
        self._key, self._users = self.directory / "noise.key", self.directory / "users.digest"
        self._keep = keep

    def create(self, key: bytes) -> None:
        """Make the run's directory with its noise key, 32 bytes. Raises `CheckpointError` if a key exists already."""
        if len(key) != KEY_BYTES:
            raise CheckpointError(
                "noise key", f"it has {len(key)} bytes.", "32 bytes from secrets.token_bytes", code="key-length"
            )
        content = key_format().wrap(key)
        for directory in (self.directory, self._pending, self._committed):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            make_file(self._key, content)
        except FileExistsError:
            why = "there is one already; replacing it would break resuming."
            raise CheckpointError(f"noise key {self._key}", why, code="key-exists") from None
        sync_directory(self.directory.parent)

    def remove(self) -> None:
        """Undo `create` for a run that the ledger refused. Raises `CheckpointError` if there are checkpoints."""
        if any(self._files(self._committed)):
            why = "it holds checkpoints; it is not removed."
            raise CheckpointError(f"run directory {self.directory}", why, code="checkpoints-kept")
        self._remove_pending()
        self._key.unlink(missing_ok=True)
        self._users.unlink(missing_ok=True)
        for public in (*self.directory.glob("*.strategy"), *self.directory.glob("*.safetensors")):
            public.unlink()
        for directory in (self._pending, self._committed, self._noise, self._closing, self.directory):
            if directory.exists():
                directory.rmdir()

    def key(self) -> bytes:
        """Return the noise key. Raises `CheckpointError` if it is missing, of wrong length, or readable by others."""
        try:
            mode = self._key.stat().st_mode & 0o777
            content = self._key.read_bytes()
        except OSError as error:
            why = f"it cannot be read ({error.strerror}); no other key will do."
            raise CheckpointError(f"noise key {self._key}", why, "its backup", code="key-unreadable") from None
        if mode & 0o077:
            why = f"others can read it (mode {mode:o})."
            raise CheckpointError(f"noise key {self._key}", why, "chmod 600", code="key-readable-by-others")
        key = key_format().unwrap(content)
        if len(key) != KEY_BYTES:
            why = f"it has {len(key)} bytes, not 32."
            raise CheckpointError(f"noise key {self._key}", why, "its backup", code="key-length")
        return key

    def has_users(self, names: NDArray[np.uint64]) -> bool:
        """Return whether these are the users, by pseudonym, with whom the run began. The first call fixes
        them.

        The file tells nobody who they are: it holds a salt and a digest, for its owner alone, and goes with
        the key. Raises OSError if the disk refuses.
        """
        known = self._users.exists()
        salt = self._users.read_bytes()[:KEY_BYTES] if known else secrets.token_bytes(KEY_BYTES)
        content = salt + hmac.digest(salt, np.sort(names).tobytes(), "sha256")
        if not known:
            make_file(self._users, content)
        return hmac.compare_digest(self._users.read_bytes(), content)

    def secrets(self) -> list[Path]:
        """Return the files that only a run under way may have: key, users' digest, checkpoints, and what a
        crash left.
        """
        own = (self._key.name, self._users.name)
        keys = [path for path in self._files(self.directory) if any(name in path.name for name in own)]
        others = (self._pending, self._closing, self._committed, self._noise)
        return [*keys, *(path for directory in others for path in self._files(directory))]

    def destroy(self) -> None:
        """Overwrite and remove all `secrets`, the key first: the run has ended. Idempotent, also after a
        crash.

        A copy-on-write file system or a flash disk may keep old blocks all the same; only encryption of the
        disk covers those. Raises `CheckpointError` if the disk refuses.
        """
        try:
            for path in self.secrets():
                if not path.exists():
                    continue  # another process is at the same work
                with open(path, "r+b") as file:
                    size = path.stat().st_size
                    for start in range(0, size, _BLOCK):
                        file.write(bytes(min(_BLOCK, size - start)))
                    file.flush()
                    os.fsync(file.fileno())
                path.unlink()
                sync_directory(path.parent)
                faults.point("run.secret-destroyed")
        except OSError as error:
            raise CheckpointError(
                f"key and checkpoints in {self.directory}",
                f"they cannot be destroyed ({error.strerror}).",
                "mend the disk, then `fieldfare verify`",
                code="files-indestructible",
            ) from error

    def write(self, round: int, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, object]) -> str:
        """Write a pending checkpoint, durably, in place of any older one; returns its digest (SHA-256, hex).

        Args:
            meta: finite JSON with all that `commit_round` needs, so that a crash before the commit is rolled
                forward.

        Raises:
            CheckpointError: the disk refuses. No pending checkpoint is left then.
        """
        self._remove_pending()
        digest = self._write(self._pending, round, tensors, meta)
        faults.point("checkpoint.pending")
        return digest

    def _write(
        self, directory: Path, round: int, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, object]
    ) -> str:
        temporary = directory / f".{secrets.token_hex(8)}.tmp"
        try:
            digest = _write_file(temporary, round, tensors, meta)
            faults.point("checkpoint.synced")
            # Its name is its digest, and a rename is all or nothing: a torn file never has a whole one's name.
            temporary.rename(directory / (digest + _SUFFIX))
            sync_directory(directory)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise CheckpointError(
                f"checkpoint of round {round} in {self.directory}",
                f"it cannot be written ({error.strerror}).",
                "make room, then resume the run",
                code="checkpoint-unwritable",
            ) from error
        return digest

    def write_closing(self, round: int, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, object]) -> str:
        """Write a masked sum that is closed, durably; returns its digest. Raises `CheckpointError` as `write`."""
        self._closing.mkdir(mode=0o700, exist_ok=True)
        sync_directory(self.directory)
        digest = self._write(self._closing, round, tensors, meta)
        faults.point("round.closing.written")
        return digest

    def closing(self, digest: str) -> Checkpoint:
        """Return what `write_closing` wrote. Raises `CheckpointError` if it is missing or changed."""
        path = self._closing / (digest + _SUFFIX)
        why, near = "it is missing, or its bytes are not its own.", "its backup; without it, end the run"
        return _read_whole(path, digest, CheckpointError(f"closed round {path}", why, near, code="closing-missing"))

    def write_noise(self, round: int, tensors: Mapping[str, torch.Tensor], position: Mapping[str, object]) -> str:
        """Write a state of the noise, durably, for checkpoints to name; returns its digest (SHA-256, hex).

        It stays as long as a committed checkpoint names it. Raises `CheckpointError` as `write`.
        """
        self._noise.mkdir(mode=0o700, exist_ok=True)
        sync_directory(self.directory)
        return self._write(self._noise, round, tensors, position)

    def read_noise(self, digest: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return (tensors, position) that `write_noise` wrote. Raises `CheckpointError` if they are missing
        or changed.
        """
        path = self._noise / (digest + _SUFFIX)
        why, near = "it is missing, or its bytes are not its own.", "its backup"
        lost = CheckpointError(f"noise state {path}", why, near, code="noise-state-missing")
        kept = _read_whole(path, digest, lost)
        return kept.tensors, kept.meta

    def holds_noise(self, digest: str) -> bool:
        """Return whether the whole state of the noise with this digest is there."""
        return _is_whole(self._noise / (digest + _SUFFIX), digest)

    def named_by(self, digest: str) -> tuple[str | None, str | None]:
        """Return what a committed checkpoint names by digests, None for nothing: its nonces, and its noise's state.

        Reads no tensor. Raises `CheckpointError` if it is not one of Fieldfare's.
        """
        meta = _read(self._committed / (digest + _SUFFIX), digest, tensors=False).meta
        return meta.get("nonces"), meta.get("noise", {}).get(NOISE_BASE)

    def promote(self, digest: str) -> Path:
        """Move the pending checkpoint to `checkpoints`, after the ledger's commit; returns its path. Idempotent."""
        source, target = self._pending / (digest + _SUFFIX), self._committed / (digest + _SUFFIX)
        faults.point("checkpoint.promoting")
        try:
            if source.exists():
                source.rename(target)
                sync_directory(self._committed)
                sync_directory(self._pending)
            elif not target.exists():
                why = f"it is nowhere in {self.directory}."
                raise CheckpointError(f"checkpoint {digest}", why, "its backup", code="checkpoint-missing")
            faults.point("checkpoint.promoted")
            self._prune(digest)
        except OSError as error:
            why = f"it cannot be promoted ({error.strerror})."
            raise CheckpointError(f"checkpoint {target}", why, code="checkpoint-not-promoted") from error
        return target

    def pending(self) -> Checkpoint | None:
        """Return the whole checkpoint that awaits the ledger's commit, if any. Torn files are removed."""
        for path in self._files(self._pending):
            if path.suffix == _SUFFIX and _digest(path) == path.stem:
                return _read(path, path.stem)
            path.unlink()
        return None

    def discard(self, closing: str | None = None) -> None:
        """Remove what is pending, and every closed sum but `closing`: their rounds are void, or committed."""
        self._remove_pending()
        for path in self._files(self._closing):
            if path.stem != closing:
                path.unlink()

    def latest_committed(self, digest: str) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
        """Return (tensors, meta) of the checkpoint that the ledger's newest commit names.

        A crash between commit and promotion leaves it pending; it is promoted now.

        Raises:
            CheckpointError: it is missing, or its bytes are not those that were committed.
        """
        path = self._committed / (digest + _SUFFIX)
        if not path.exists():
            self.promote(digest)
        why = "its bytes are not those that were committed."
        changed = CheckpointError(f"checkpoint {path}", why, "its backup", code="checkpoint-changed")
        kept = _read_whole(path, digest, changed)
        return kept.tensors, kept.meta

    def digests(self) -> dict[str, str]:
        """Return the digest that each committed checkpoint's name claims -> the SHA-256 of its bytes."""
        return {path.stem: _digest(path) for path in self._files(self._committed) if path.suffix == _SUFFIX}

    def committed_rounds(self) -> dict[int, str]:
        """Return how many rounds each whole committed checkpoint has been through -> its digest. Reads no tensor."""
        digests = [digest for digest, found in self.digests().items() if digest == found]
        paths = {digest: self._committed / (digest + _SUFFIX) for digest in digests}
        return {_read(path, digest, tensors=False).round + 1: digest for digest, path in paths.items()}

    def holds(self, digest: str) -> bool:
        """Return whether a whole checkpoint with this digest exists, promoted or pending."""
        paths = (directory / (digest + _SUFFIX) for directory in (self._committed, self._pending))
        return any(_is_whole(path, digest) for path in paths)

    def _prune(self, newest: str) -> None:
        if self._keep is None:
            return
        files = [path for path in self._files(self._committed) if path.stem != newest]
        files.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in files[max(0, self._keep - 1) :]:
            path.unlink()
            faults.point("checkpoint.pruned")
        if states := list(self._files(self._noise)):
            named = {self.named_by(path.stem)[1] for path in self._files(self._committed) if path.suffix == _SUFFIX}
            for path in states:
                if path.stem not in named:
                    path.unlink()

    def _remove_pending(self) -> None:
        for path in self._files(self._pending):
            path.unlink()

    @staticmethod
    def _files(directory: Path) -> Iterator[Path]:
        return iter(sorted(directory.iterdir()) if directory.is_dir() else ())


def _write_file(path: Path, round: int, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, object]) -> str:
    """Write a safetensors file, tensor by tensor, and sync it; returns its SHA-256.

    safetensors' own writer would need a second copy of the model in memory.
    """
    note = json.dumps({"round": round, "meta": meta}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    header: dict[str, object] = {"__metadata__": {"fieldfare": note}}
    # By falling element size, as the library orders them, so that every tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    offset = 0
    for name, tensor in ordered:
        if str(tensor.dtype) not in _DTYPES or name == "__metadata__":
            raise CheckpointError(
                f"tensor {name!r}", f"{tensor.dtype} cannot be kept.", ", ".join(_DTYPES.values()), code="tensor-type"
            )
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[str(tensor.dtype)], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # data begin at a multiple of 8
    hasher = hashlib.sha256()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:

        def put(data: bytes | memoryview) -> None:
            hasher.update(data)
            file.write(data)

        put(len(text).to_bytes(8, "little"))
        put(text)
        faults.point("checkpoint.writing")
        for number, (_, tensor) in enumerate(ordered):
            put(_raw(tensor))
            if number == len(ordered) // 2:
                file.flush()
                faults.point("checkpoint.half-written")
        file.flush()
        faults.point("checkpoint.written")
        os.fsync(file.fileno())
    return hasher.hexdigest()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_whole(path: Path, digest: str) -> bool:
    return path.exists() and hmac.compare_digest(_digest(path), digest)


def _read_whole(path: Path, digest: str, refusal: CheckpointError) -> Checkpoint:
    """Return what the file of this digest holds. Raises `refusal` unless it is there, and whole."""
    if not _is_whole(path, digest):
        raise refusal
    return _read(path, digest)


def _converted(meta: dict[str, object]) -> dict[str, object]:
    """Return `meta` as it is written today: older checkpoints carry a list of the nonces of all rounds so far."""
    carried = meta.get("nonces")
    if isinstance(carried, list):
        meta["nonces"], meta["nonce"] = digest_of([bytes.fromhex(nonce) for nonce in carried]), carried[-1]
    return meta


def _read(path: Path, digest: str, *, tensors: bool = True) -> Checkpoint:
    from safetensors import SafetensorError, safe_open  # a reader of budgets needs none

    try:
        with safe_open(path, framework="pt") as file:
            note = json.loads(file.metadata()["fieldfare"])
            names = file.keys() if tensors else ()
            held = {name: file.get_tensor(name).clone() for name in names}
        return Checkpoint(digest, int(note["round"]), held, _converted(dict(note["meta"])))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {path}", f"it is not one of Fieldfare's ({error}).", code="checkpoint-foreign"
        ) from None

"""Checkpoints are whole or not there, and are what the ledger's commit names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fieldfare.errors import BadInput, CheckpointError
from fieldfare_server import faults
from fieldfare_server.files.checkpoint import RunFiles, key_commitment
from support.refusals import coded

KEY = bytes(range(32))
TENSORS = {
    "params": torch.arange(7, dtype=torch.float32),
    "flag": torch.tensor([True, False, True]),
    "half": torch.tensor([1.5, -2.0, 0.25], dtype=torch.bfloat16),
    "step": torch.tensor(5, dtype=torch.int64),
    "matrix": torch.arange(6, dtype=torch.float64).reshape(2, 3).t(),
    "none": torch.empty(0, 4),
}
META = {"attempt": 1, "participants": [3, 1, 4], "spent": "{}"}


@pytest.fixture
def store(tmp_path: Path) -> RunFiles:
    made = RunFiles(tmp_path / "runs", "run-1")
    made.create(KEY)
    return made


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    names = left.keys() == right.keys()
    return names and all(left[n].dtype == right[n].dtype and torch.equal(left[n], right[n]) for n in left)


def test_what_was_written_comes_back_bit_for_bit(store: RunFiles) -> None:
    digest = store.write(3, TENSORS, META)
    path = store.promote(digest)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert same(load_file(path), TENSORS)  # the library's own reader agrees about the format
    tensors, meta = store.latest_committed(digest)
    assert same(tensors, TENSORS)
    assert meta == META
    assert store.promote(digest) == path
    assert store.digests() == {digest: digest}


def test_equal_content_has_equal_bytes(store: RunFiles) -> None:
    backwards = dict(reversed(TENSORS.items()))
    assert store.write(3, TENSORS, META) == store.write(3, backwards, dict(reversed(META.items())))


def test_pending_is_invisible_until_promoted(store: RunFiles) -> None:
    digest = store.write(3, TENSORS, META)
    assert store.digests() == {}
    pending = store.pending()
    assert pending is not None
    assert (pending.digest, pending.round, pending.meta) == (digest, 3, META)
    assert same(pending.tensors, TENSORS)
    store.promote(digest)
    assert store.pending() is None


def test_a_new_round_replaces_what_was_pending(store: RunFiles) -> None:
    store.write(3, TENSORS, META)
    digest = store.write(4, TENSORS, META)
    assert [path.stem for path in (store.directory / "pending").iterdir()] == [digest]
    store.discard()
    assert store.pending() is None


def test_a_commit_whose_promotion_was_lost_is_found(store: RunFiles) -> None:
    digest = store.write(3, TENSORS, META)
    assert store.holds(digest)
    assert store.latest_committed(digest)[1] == META
    assert store.pending() is None


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "grow"])
def test_torn_pending_is_removed_and_torn_committed_is_refused(store: RunFiles, damage: str) -> None:
    digest = store.write(3, TENSORS, META)
    (path,) = (store.directory / "pending").iterdir()
    whole = path.read_bytes()
    torn = {"cut": whole[:-9], "flip": whole[:-1] + bytes([whole[-1] ^ 1]), "empty": b"", "grow": whole + b"\0"}[damage]
    path.write_bytes(torn)
    assert store.pending() is None
    assert not path.exists()
    store.write(3, TENSORS, META)
    store.promote(digest).write_bytes(torn)
    with pytest.raises(CheckpointError, check=coded("checkpoint-changed")):
        store.latest_committed(digest)


def test_a_missing_checkpoint_is_refused(store: RunFiles) -> None:
    with pytest.raises(CheckpointError, check=coded("checkpoint-missing")):
        store.latest_committed("0" * 64)


def test_a_foreign_file_is_refused_even_under_its_right_name(store: RunFiles) -> None:
    foreign = store.directory / "foreign"
    save_file({"x": torch.zeros(1)}, foreign)
    digest = hashlib.sha256(foreign.read_bytes()).hexdigest()
    foreign.rename(store.directory / "checkpoints" / f"{digest}.safetensors")
    with pytest.raises(CheckpointError, check=coded("checkpoint-foreign")):
        store.latest_committed(digest)


def test_only_as_many_as_asked_for_are_kept(tmp_path: Path) -> None:
    store = RunFiles(tmp_path, "run-1", keep=2)
    store.create(KEY)
    names = []
    for t in range(5):
        names.append(store.write(t, {"x": torch.tensor(t)}, {}))
        store.promote(names[-1])
    assert sorted(store.digests()) == sorted(names[-2:])


@pytest.mark.parametrize("point", [p for p in faults.POINTS if p.startswith("checkpoint.") and "prun" not in p])
@pytest.mark.parametrize("action", ["enospc", "eio"])
def test_a_disk_that_refuses_leaves_the_last_checkpoint(store: RunFiles, point: str, action: str) -> None:
    first = store.write(0, TENSORS, META)
    store.promote(first)
    faults.load({faults.VARIABLE: f"{point}:{action}"})
    try:
        with pytest.raises((CheckpointError, OSError)):
            store.promote(store.write(1, TENSORS, {**META, "attempt": 2}))
    finally:
        faults.load({})
    assert store.latest_committed(first)[1] == META
    assert not list((store.directory / "pending").glob("*.tmp"))


def test_the_key_is_kept_for_its_owner_only(store: RunFiles) -> None:
    path = store.directory / "noise.key"
    assert store.key() == KEY
    assert path.stat().st_mode & 0o777 == 0o600
    assert store.directory.stat().st_mode & 0o777 == 0o700
    path.chmod(0o640)
    with pytest.raises(CheckpointError, check=coded("key-readable-by-others", "chmod 600")):
        store.key()
    path.chmod(0o600)
    path.write_bytes(KEY[:-1])
    with pytest.raises(CheckpointError, check=coded("key-length")):
        store.key()
    path.unlink()
    with pytest.raises(CheckpointError, check=coded("key-unreadable")):
        store.key()


def test_a_key_is_never_replaced(store: RunFiles) -> None:
    with pytest.raises(CheckpointError, check=coded("key-exists")):
        store.create(bytes(32))
    assert store.key() == KEY


def test_a_commitment_tells_keys_apart_and_nothing_else() -> None:
    assert key_commitment(KEY) != key_commitment(bytes(32))
    assert key_commitment(KEY) != hashlib.sha256(KEY).hexdigest()


def test_a_refused_run_leaves_nothing(store: RunFiles) -> None:
    store.remove()
    assert not store.directory.exists()
    store.create(KEY)
    store.promote(store.write(0, TENSORS, META))
    with pytest.raises(CheckpointError, check=coded("checkpoints-kept")):
        store.remove()


@pytest.mark.parametrize("run_id", ["", ".", "..", "a/b", "a\\b", ".hidden"])
def test_a_run_id_cannot_lead_elsewhere(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(CheckpointError, check=coded("run-id-no-directory")):
        RunFiles(tmp_path, run_id)


def test_what_cannot_be_kept_is_refused(store: RunFiles) -> None:
    with pytest.raises(CheckpointError, check=coded("tensor-type")):
        store.write(0, {"x": torch.zeros(2, dtype=torch.complex64)}, {})
    with pytest.raises(ValueError, match="JSON"):
        store.write(0, TENSORS, {"loss": float("nan")})
    assert store.pending() is None
    assert not list((store.directory / "pending").iterdir())


def test_the_metadata_is_readable_without_this_program(store: RunFiles) -> None:
    path = store.promote(store.write(3, TENSORS, META))
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert json.loads(header["__metadata__"]["fieldfare"]) == {"meta": META, "round": 3}


def test_fault_points_are_off_unless_named_and_named_rightly() -> None:
    for text in ("nowhere:kill", "checkpoint.written:explode", "checkpoint.written:kill:soon"):
        with pytest.raises(BadInput):
            faults.load({faults.VARIABLE: text})
    faults.load({})
    for point in faults.POINTS:
        faults.point(point)
    faults.load({faults.VARIABLE: "checkpoint.written:raise:2,checkpoint.synced:eio"})
    try:
        faults.point("checkpoint.written")
        with pytest.raises(faults.FaultInjected):
            faults.point("checkpoint.written")
        faults.point("checkpoint.written")
        with pytest.raises(OSError, match="injected"):
            faults.point("checkpoint.synced")
    finally:
        faults.load({})

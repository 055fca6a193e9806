"""CIFAR-10's binary form and TensorFlow Federated's StackOverflow, in their true formats."""

from __future__ import annotations

import hashlib
import json
import lzma
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fieldfare.errors import BadInput
from fieldfare_client.sources import fetch
from fieldfare_client.storage import open_table
from fieldfare_research import stackoverflow, tff
from fieldfare_research.cifar10 import RECORD, Cifar10Task, read_binary
from fieldfare_research.stackoverflow import FIRST, LAST, UNKNOWN, StackOverflowTask
from support.refusals import Coded, coded

STACKOVERFLOW = stackoverflow.SOURCE


def cifar(records: int) -> bytes:
    j = np.arange(RECORD - 1)
    pixels = [(7 * i + 13 * j + 50 * (j // 1024)) % 256 for i in range(records)]
    return b"".join(bytes([i % 10]) + row.astype(np.uint8).tobytes() for i, row in enumerate(pixels))


def test_cifars_records_are_label_and_planes(tmp_path: Path) -> None:
    content = cifar(3)
    assert hashlib.sha256(content).hexdigest() == "139bde6b691f8a142e12c9d45cbc26ef1418bede9b1a8f68460020581f5fe2f2"
    (tmp_path / "x.bin").write_bytes(content)
    images, labels = read_binary(tmp_path / "x.bin")
    assert labels.tolist() == [0, 1, 2]
    assert images[1, 0, 0].tolist() == [7, 57, 107]
    assert images[1, 0, 1].tolist() == [20, 70, 120]
    assert images[2, 31, 31].tolist() == [1, 51, 101]
    assert images.sum() == 1_175_040


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", coded("wrong-form", "x.bin")),
        (cifar(1) + b"\0", coded("wrong-form", "x.bin", "100")),
        (b"\x0a" + cifar(1)[1:], coded("wrong-form", "x.bin", "10")),
    ],
)
def test_another_file_is_refused(content: bytes, says: Coded, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(BadInput, check=says):
        read_binary(tmp_path / "x.bin")
    with pytest.raises(BadInput, check=coded("unreadable")):
        read_binary(tmp_path / "nowhere.bin")


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-bin"])
def test_the_binary_form_is_dealt_to_users(inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / inside
    folder.mkdir(exist_ok=True)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(cifar(2))
    monkeypatch.setenv("FIELDFARE_DATA", str(tmp_path))
    table = Cifar10Task(users=4).users()
    assert table.sizes.tolist() == [2, 3, 2, 3]
    assert len(Cifar10Task(users=10).users()) == 10
    task = Cifar10Task(users=10)
    assert 0 <= task.evaluate(task.build_model())["accuracy"] <= 1
    with pytest.raises(BadInput, check=coded("wrong-form", "task.users", "10")):
        Cifar10Task(users=11).users()
    (tmp_path / "cifar10-train.arrow").write_bytes(b"")
    with pytest.raises(BadInput, check=coded("not-found", "task.users")):
        Cifar10Task(users=10).users()


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def example(features: dict[str, bytes | int], *, packed: bool = True, reverse: bool = False) -> bytes:
    """A serialised tf.train.Example with its map in order of the keys, or in the opposite order."""
    entries = b""
    for key in sorted(features, reverse=reverse):
        value = features[key]
        if isinstance(value, bytes):
            feature = field(1, field(1, value))
        else:
            feature = field(3, field(1, varint(value)) if packed else b"\x08" + varint(value))
        entries += field(1, field(1, key.encode()) + field(2, feature))
    return field(1, entries)


POST: dict[str, bytes | int] = {
    "creation_date": b"2010-01-08 09:34:05 UTC",
    "score": 172,
    "tags": b"sql|median",
    "title": b"median",
    "tokens": b"css3 does finally define the",
    "type": b"answer",
}


def test_examples_are_read_as_tensorflow_writes_them() -> None:
    blob = example(POST)
    assert len(blob) == 175
    assert hashlib.sha256(blob).hexdigest() == "0a47d0d693875f13c5fc971bf1378dcdef1ee9355c69b7013ce546f874ba28c5"
    expected = {key: [value] for key, value in POST.items()}
    for packed in (True, False):
        for reverse in (True, False):
            assert tff.read_example(example(POST, packed=packed, reverse=reverse)) == expected
    negative = "0a310a170a0573636f7265120e1a0c0a0affffffffffffffffff010a160a06746f6b656e73120c0a0a0a087468616e6b73202e"
    assert example({"score": -1, "tokens": b"thanks ."}).hex() == negative
    assert tff.read_example(bytes.fromhex(negative)) == {"score": [-1], "tokens": [b"thanks ."]}


@pytest.mark.parametrize(
    "blob",
    [
        example(POST)[:-3],
        example(POST)[:1],
        b"\x0b",  # a group: a wire type that no example has
        field(1, b"\x0e"),
        b"\x0a" + b"\xff" * 11,
        b"\x08\x01",
        field(1, field(1, field(1, b"\xff") + field(2, b""))),
    ],
)
def test_a_broken_example_is_refused(blob: bytes) -> None:
    with pytest.raises(BadInput, check=coded("unreadable", "serialized_example_proto", "tf.train.Example")):
        tff.read_example(blob)


def test_an_example_without_tokens_is_refused() -> None:
    for blob in (b"", example({"score": 1}), example({"tokens": 1})):
        with pytest.raises(BadInput, check=coded("wrong-form", "serialized_example_proto")):
            tff.tokens(blob)


TEXTS = [
    ("train", "8", b"the bug ."),
    ("train", "14", b"a " * 30),
    ("train", "8", b"strange the"),
    ("heldout", "10", b"the a"),
    ("heldout", "30", b"a bug"),
    ("heldout", "40", b"bug"),
    ("test", "8", b"later"),
]


def database(folder: Path, rows: list[tuple[str, str, bytes]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "stackoverflow.word_count").write_text("the 30\na 20\nbug 20\n", "utf-8")
    with closing(sqlite3.connect(folder / "stackoverflow.sqlite")) as made:
        made.execute("CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)")
        made.execute("CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)")
        made.executemany(
            "INSERT INTO examples VALUES (?, ?, ?)",
            [(split, client, example({**POST, "tokens": text})) for split, client, text in rows],
        )
        made.commit()


@pytest.mark.parametrize("form", ["sqlite", "lzma", "file"])
def test_held_out_users_are_the_tune_and_the_test_table(form: str, tmp_path: Path) -> None:
    given = tmp_path / "given"
    database(given, TEXTS)
    whole = given / "stackoverflow.sqlite"
    if form == "lzma":
        (given / "stackoverflow.sqlite.lzma").write_bytes(lzma.compress(whole.read_bytes()))
        whole.unlink()
    facts = fetch(STACKOVERFLOW, tmp_path / "data", whole if form == "file" else given)
    assert {name: (table["users"], table["rows"]) for name, table in facts["tables"].items()} == {
        "stackoverflow-train.arrow": (2, 3),
        "stackoverflow-tune.arrow": (1, 1),
        "stackoverflow-test.arrow": (2, 2),
    }
    table = open_table(tmp_path / "data" / "stackoverflow-train.arrow")
    tokens = table.rows(np.arange(2)).columns["tokens"]
    assert tokens[0].tolist() == [FIRST, *[2] * 20], "client 14 sorts before 8; twenty tokens at most"
    assert tokens[1, :5].tolist() == [FIRST, 1, 3, UNKNOWN, LAST]
    assert tokens[2, :4].tolist() == [FIRST, UNKNOWN, 1, LAST], "a user's sentences keep their order"
    assert len(StackOverflowTask(tmp_path / "data").users()) == 2
    tuned = open_table(tmp_path / "data" / "stackoverflow-tune.arrow").rows(np.arange(1)).columns["tokens"]
    assert tuned[0, :4].tolist() == [FIRST, 1, 2, LAST], "client 10, by the hash of its id"


def test_sentences_of_a_user_are_capped(tmp_path: Path) -> None:
    database(tmp_path, [("train", "1", f"w{n}".encode()) for n in range(5)])
    assert list(tff.sentences(tmp_path, "train", 3)) == [("1", ["w0", "w1", "w2"])]


def test_a_user_of_both_splits_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    given = tmp_path / "given"
    database(given, [*TEXTS, ("heldout", "14", b"again")])
    with pytest.raises(BadInput, check=coded("conflict", "user 14")):
        fetch(STACKOVERFLOW, tmp_path / "data", given)
    assert list((tmp_path / "data").iterdir()) == []


def test_other_files_are_refused(tmp_path: Path) -> None:
    given = tmp_path / "given"
    database(given, TEXTS)
    (given / "stackoverflow.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(BadInput, check=coded("unreadable")):
        fetch(STACKOVERFLOW, tmp_path / "data", given)
    (given / "stackoverflow.sqlite").rename(given / "stackoverflow.sqlite.lzma")
    with pytest.raises(BadInput, check=coded("unreadable")):
        fetch(STACKOVERFLOW, tmp_path / "data", given)
    (given / "stackoverflow.sqlite.lzma").unlink()
    with pytest.raises(BadInput, check=coded("not-found")):
        fetch(STACKOVERFLOW, tmp_path / "data", given)
    for text in ("the\n", "the 3\na 4\n", "the x\n"):
        (given / "stackoverflow.word_count").write_text(text)
        with pytest.raises(BadInput, check=coded("wrong-form")):
            tff.word_count(given)
    (given / "stackoverflow.word_count").unlink()
    with pytest.raises(BadInput, check=coded("not-found")):
        tff.word_count(given)


def test_hdf5_files_need_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stackoverflow_train.h5").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(BadInput, check=coded("not-installed")):
        list(tff.sentences(tmp_path, "train", 3))


def test_hdf5_files_are_read_like_the_database(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="an optional package reads HDF5")
    database(tmp_path / "one", TEXTS)
    other = tmp_path / "other"
    other.mkdir()
    (other / "stackoverflow.word_count").write_text((tmp_path / "one/stackoverflow.word_count").read_text())
    for split, name in (("train", "train"), ("heldout", "held_out")):
        with h5py.File(other / f"stackoverflow_{name}.h5", "w") as file:
            for client in {client for part, client, _ in TEXTS if part == split}:
                texts = [text for part, owner, text in TEXTS if (part, owner) == (split, client)]
                file.create_dataset(f"examples/{client}/tokens", data=np.array(texts, "S80"))
    facts = [fetch(STACKOVERFLOW, tmp_path / f"{folder}-data", tmp_path / folder) for folder in ("one", "other")]
    assert json.dumps(facts[0]["tables"]) == json.dumps(facts[1]["tables"])
    (other / "stackoverflow_train.h5").write_bytes(b"no")
    with pytest.raises(BadInput, match="no HDF5 file"):
        list(tff.sentences(other, "train", 3))

"""A ClientApp whose node 0 lies as `support.liars` does, in a real ClientApp process.

The folder that WIRE_LIES names says which lies: `script.json` holds {"train": names, "query": name or "", "late":
seconds}. The n-th instruction gets the n-th lie, and honest training after the last. `told` lists what was told, a
line each.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp

import fieldfare_client
from fieldfare_flower.messages import HEADER, QUERY_USERS, UPDATE

spec = importlib.util.spec_from_file_location("honest_app", Path(fieldfare_client.__path__[1]) / "app.py")
assert spec is not None
assert spec.loader is not None
honest = importlib.util.module_from_spec(spec)
sys.modules["honest_app"] = honest  # where dataclasses look for it
spec.loader.exec_module(honest)
app = ClientApp()
preload = honest.preload  # what a warm parent calls
HOME = Path(os.environ["WIRE_LIES"])
Lie = Callable[[Message, Message], Message]
SILENT = 1e3
"""Seconds that stand for never in `Liar.takes`."""


def replay(message: Message, reply: Message) -> Message:
    """The header of its first update."""
    reply.content.config_records[HEADER].update(json.loads((HOME / "first").read_text()))
    return reply


def body(kind: type[Any], change: Callable[[bytes], bytes]) -> Lie:
    """Changes the bytes in which every object of a class travels, here and in the process that sends them."""

    def lie(message: Message, reply: Message) -> Message:
        deflate = kind.deflate

        def crafted(self: Any) -> bytes:
            head, _, text = deflate(self).partition(b"\0")
            name, children, _ = head.split(b" ")
            text = change(text)
            return b" ".join([name, children, str(len(text)).encode()]) + b"\0" + text

        kind.deflate = crafted
        return reply

    return lie


def one_chunk_again_and_again(message: Message, reply: Message) -> Message:
    """Arrays of 64 kB that say that they are 1.3 GB."""
    record = reply.content.array_records[UPDATE]
    data = {name: Array(a.dtype, a.shape, a.stype, a.data + os.urandom(1 << 16)) for name, a in record.items()}
    reply.content[UPDATE] = ArrayRecord(data)
    return body(Array, lambda text: json.dumps({**json.loads(text), "arraychunk_ids": [0] * 20_000}).encode())(
        message, reply
    )


def megabytes(message: Message, reply: Message) -> Message:
    """An update as it should be, and as many megabytes more as WIRE_MEGABYTES says, in parts of WIRE_PART megabytes."""
    size, part = (int(os.environ[name]) << 20 for name in ("WIRE_MEGABYTES", "WIRE_PART"))
    sys.modules[Array.__module__].FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE = part + 1000  # type: ignore[attr-defined]
    for number in range(size // part):  # no two alike: Flower sends equal ones once
        reply.content[f"more-{number}"] = ArrayRecord([np.frombuffer(os.urandom(part), np.uint8)])
    return reply


CRAFTED: dict[str, Lie] = {
    "megabytes": megabytes,
    "a chunk twenty thousand times": one_chunk_again_and_again,
    "a chunk that is not there": body(
        Array, lambda text: text.replace(b'"arraychunk_ids": [0]', b'"arraychunk_ids": [7]')
    ),
    "an array of nonsense": body(Array, lambda text: b"[" * 100_000),
    "a record of nonsense": body(ArrayRecord, lambda text: b"\xff" + text),
    "metrics of nonsense": body(MetricRecord, lambda text: b"\xff" * 20),
    "a message of nonsense": body(Message, lambda text: b"\xff" * 20),
    "a reply to nothing": body(Message, lambda text: b""),
    "its process dies": lambda message, reply: os._exit(1),
}
"""What no ClientApp can say through Flower's classes, but any node can send."""


def tell(kind: str, message: Message, reply: Message) -> Message:
    """The reply that node 0 sends instead."""
    script = json.loads((HOME / "script.json").read_text())
    told = (HOME / "told").read_text().split("\n")[:-1] if (HOME / "told").exists() else []
    names = [script["query"]] if kind == "query" else script["train"][len(told) : len(told) + 1]
    if kind == "train" and not told:  # every ClientApp is a new process, so a file keeps it
        (HOME / "first").write_text(json.dumps(dict(reply.content.config_records[HEADER])))
    if kind == "train" and names:
        with (HOME / "told").open("a") as file:
            file.write(names[0] + "\n")
    if not names or not names[0]:
        return reply
    (name,) = names
    if name in CRAFTED:
        return CRAFTED[name](message, reply)
    from support.liars import LIARS  # imports this module

    (liar,) = (liar for liar in LIARS if liar.name == name)
    if liar.takes("train" if kind == "train" else QUERY_USERS) >= SILENT:
        time.sleep(script["late"])
    make = {"query": liar.query, "train": liar.train}[kind]
    if name == "a reply of an old round":
        return replay(message, reply)
    return reply if make is None else make()(message, reply)


@app.query("users")
def users(message: Message, context: Context) -> Message:
    """Whom it hosts, or a lie."""
    reply = honest.users(message, context)
    return tell("query", message, reply) if context.node_config["partition-id"] == 0 else reply


@app.train()
def train(message: Message, context: Context) -> Message:
    """Honest training, and then a lie."""
    reply = honest.train(message, context)
    return tell("train", message, reply) if context.node_config["partition-id"] == 0 else reply

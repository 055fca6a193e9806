"""A ClientApp that lies in the rounds that the file /state/lies names ({"round": "lie"}), and is honest elsewhere."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

import fieldfare_client
from fieldfare_flower.messages import TrainReply

spec = importlib.util.spec_from_file_location("honest_app", Path(fieldfare_client.__path__[1]) / "app.py")
assert spec is not None
assert spec.loader is not None
honest = importlib.util.module_from_spec(spec)
sys.modules["honest_app"] = honest  # where dataclasses look for it
spec.loader.exec_module(honest)
LIES = Path("/state/lies")
app = ClientApp()
preload = honest.preload  # what a warm parent calls


@app.query("users")
def users(message: Message, context: Context) -> Message:
    """Honest."""
    return honest.users(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Honest training, and a reply to go with the lie."""
    honest.TrainReply = _reply
    return honest.train(message, context)


def _reply(occasion: Any, update: Any, count: int, counts: Any) -> TrainReply:
    lie = json.loads(LIES.read_text()).get(str(occasion.round), "") if LIES.exists() else ""
    if lie == "slow":
        time.sleep(30.0)
    if lie == "stale":
        occasion = dataclasses.replace(occasion, attempt=occasion.attempt + 1)
    if lie == "crowd":
        count += 1000
    change = {
        "nan": lambda a: np.full_like(a, np.nan),
        "huge": lambda a: a + np.float32(1e30),
        "shape": lambda a: a[:1],
    }.get(lie, lambda a: a)
    return TrainReply(occasion, {k: change(np.asarray(v)) for k, v in update.items()}, count, counts)

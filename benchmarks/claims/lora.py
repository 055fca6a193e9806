"""LoRA under user-level privacy: full fine-tuning, adapters, last layer.

    python benchmarks/claims/lora.py --base SHA256 --match 'blt|no privacy'
    python benchmarks/claims/lora.py --base SHA256 --cohort 780 --match 'blt|no privacy'

The base model is trained on Tang (benchmarks/claims/base.py), which is public; the users are poets of Song. Every row
of adapters trains the output bias too. Gain: nats of the base model less those of the row, on test poets. The goal:
some adapter keeps half of the gain of full fine-tuning without privacy, and its messages are 5 % as large. Each size is
a section of the page; a command leaves the sections of other sizes as they are.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
from typing import Any

import harness
import numpy as np
from flwr.app import Message
from lora_page import page
from lora_plans import ROWS, WHOLE, Size, cells, plan_table, scored, with_rate

from fieldfare.costing import cost_of
from fieldfare.plan import Plan
from fieldfare.schema import Schema
from fieldfare.task import load_task
from fieldfare_client.app import app
from fieldfare_client.simulation import LocalGrid
from fieldfare_research.poems import UNKNOWN
from fieldfare_research.sequences import PADDING
from fieldfare_server.run.rehearsal import Rehearsal
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session, seeded_key

STUDY = harness.Study("lora", scored, "nats", higher=False, data="poems")


def task_of(row: harness.Table, s: Size, base: str) -> Any:
    kind = type(load_task("poems"))
    return kind.configured(kind.Parameters(**row, base=base, width=s.width, most=s.most))


def trained_parameters(row: harness.Table, s: Size) -> int:
    return Schema.of(task_of(row, s, "").build_model()).numel


class Scale(LocalGrid):
    """Weighs the messages of training: all objects that a network would carry, each once."""

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        if message.metadata.message_type == "train":
            self.down, self.up = weight(message), weight(reply)
        return reply


def weight(thing: Any) -> int:
    """Bytes of a message of Flower's and of all that it holds, as they are sent."""
    found: dict[str, int] = {}

    def visit(one: Any) -> None:
        if one.object_id not in found:
            found[one.object_id] = len(one.deflate())
            for child in (one.children or {}).values():
                visit(child)

    visit(thing)
    return sum(found.values())


def on_the_wire(name: str, s: Size) -> tuple[int, int]:
    """Bytes (down, up) of the second round for a node that trains one user.

    In the first, adapters are zero, and a message holds its equal parts once.
    """
    one = dataclasses.replace(s, rounds=2, cohort=1)
    plan = Plan.parse(scored(with_rate(plan_table(name, 8.0, one), 0.01), "tune", harness.TUNING_SEED))
    with Session(plan, cost_of(plan), Rehearsal(), None, seeded_key(harness.TUNING_SEED)) as session:
        grid = Scale(app, 1, {"task": plan.task_reference})
        FieldfareStrategy(session).start(grid)
    return grid.down, grid.up


def base_scores(s: Size) -> dict[str, float]:
    """Scores of the base model on test poets, once every choice is stored."""
    task = task_of({}, s, s.base)
    scores: dict[str, float] = task.evaluate(task.build_model())
    return scores


def unknown_shares(s: Size) -> tuple[float, float]:
    """(of Tang, of the train poets): how many of the predicted symbols are unknown characters."""
    task = task_of({}, s, "")
    users = task.users()
    found = [task.public()[1], task.prepare(users.rows(np.arange(len(users))).columns)[1]]
    tang, song = (float((targets == UNKNOWN).sum() / (targets != PADDING).sum()) for targets in found)
    return tang, song


def joined(fresh: harness.Table) -> harness.Table:
    """What is stored: this size, and the others that were stored before, by cohort."""
    path = harness.RESULTS / "lora.json"
    before = json.loads(path.read_text())["runs"] if path.is_file() else []
    kept = [one for one in before if one["size"] != fresh["size"]]
    return {"runs": sorted([*kept, fresh], key=lambda one: (one["size"]["cohort"], one["size"]["rounds"]))}


def main() -> None:
    usual = Size("")

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--base", required=True, help="SHA-256 that benchmarks/claims/base.py prints")
        for name in ("rounds", "cohort", "users", "width", "most"):
            parser.add_argument(f"--{name}", type=int, default=getattr(usual, name))
        parser.add_argument("--match", default="", help="run only the rows whose label this regular expression finds")

    given = harness.options(__doc__ or "", more=more)
    s = Size(given.base, given.rounds, given.cohort, given.users, given.width, given.most)
    made = [one for one in cells(s) if one.label == WHOLE or re.search(given.match, one.label)]
    chosen = given.cache / STUDY.name / f"choices-{harness._sha(repr(s))[:12]}.json"
    harness.tune(STUDY, made, chosen, given.cache)
    found = harness.score(STUDY, made, chosen, given.seeds, given.cache)
    words = [f"python benchmarks/claims/lora.py --base {s.base}"]
    words += [f"--{name} {value}" for name, value in dataclasses.asdict(s).items() if value != getattr(usual, name)][1:]
    words += [f"--match {shlex.quote(given.match)}"] if given.match else []
    stored = {
        "command": " ".join(words),
        "size": dataclasses.asdict(s),
        "base": base_scores(s),
        "unknown": unknown_shares(s),
        "sizes": {name: trained_parameters(row, s) for name, row in ROWS.items()},
        "bytes": {name: on_the_wire(name, s) for name in ROWS},
        "cells": found,
    }
    stored = joined(stored)
    harness.store("lora", stored)
    print(harness.write_page("lora", page(stored)))


if __name__ == "__main__":
    main()

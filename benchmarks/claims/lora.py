"""LoRA under user-level privacy: full fine-tuning, adapters, last layer.

    python benchmarks/claims/lora.py --base SHA256 --match 'blt|no privacy'

The base model is trained on Tang (benchmarks/claims/base.py), which is public; the users are poets of Song. Every row
of adapters trains the output bias too. Gain: nats of the base model less those of the row, on test poets. The goal:
some adapter keeps half of the gain of full fine-tuning without privacy, and its messages are 5 % as large.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import shlex
import statistics
import textwrap
from dataclasses import dataclass
from typing import Any

import harness
import numpy as np
from flwr.app import Message

from fieldfare.costing import cost_of
from fieldfare.plan import Plan
from fieldfare.schema import Schema
from fieldfare.task import load_task
from fieldfare_client.app import app
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.tasks.poems import UNKNOWN
from fieldfare_client.tasks.sequences import PADDING
from fieldfare_server.run.rehearsal import Rehearsal
from fieldfare_server.run.session import Session, seeded_key
from fieldfare_server.run.strategy import FieldfareStrategy

ROWS: dict[str, harness.Table] = {
    "full": {"trained": "all"},
    **{f"rank {rank}, and bias": {"trained": "adapters", "rank": rank} for rank in (1, 2, 4, 8)},
    "last layer norm, and bias": {"trained": "last"},
}
EPSILONS = (4.0, 8.0)
WHOLE = "full, no privacy"
CLIP = {"full": 0.7, "rank 1": 0.07, "rank 2": 0.09, "rank 4": 0.12, "rank 8": 0.16, "last layer norm": 0.08}
"""0.3 times the median norm of a tune poet's update at the base model; ranks 2 and 4 lie between 1 and 8."""
RATE = {"all": 0.003, "adapters": 0.03, "last": 0.03}
"""The middle rate."""
RATIO, RATES, SPARE = 2.5, 3, 3
"""The ratio of neighbours, how many are always tried, and how many more at each end."""


@dataclass(frozen=True)
class Size:
    """How large a run is."""

    base: str
    rounds: int = 20
    cohort: int = 195
    users: int = 7806
    width: int = 64
    most: int = 4

    @property
    def separation(self) -> int:
        return self.users // self.cohort


def plan_table(name: str, epsilon: float, s: Size, scheme: str = "min-separation") -> harness.Table:
    """The plan of the row `name` without the learning rate."""
    poisson = scheme == "poisson"
    return {
        "privacy": {
            **{"population": "poems", "epsilon": epsilon, "delta": 1e-5},
            "adjacency": "add_remove" if poisson else "zero_out",
        },
        "run": {"task": "poems", "rounds": s.rounds, "cohort": s.cohort, "evaluate_every": s.rounds},
        "task": {**ROWS[name], "base": s.base, "width": s.width, "most": s.most},
        "participation": {"scheme": "poisson", "rate": s.cohort / s.users}
        if poisson
        else {"scheme": "min-separation", "separation": s.separation},
        "mechanism": {"kind": "independent"} if poisson else {"kind": "blt"},
        "clipping": {"kind": "flat", "norm": CLIP[name.removesuffix(", and bias")]},
        "client": {"epochs": 1, "batch_size": 16, "learning_rate": 1.0},
    }


def with_rate(table: harness.Table, rate: float) -> harness.Table:
    schedule = {"kind": "cool-down", "share": 0.25, "final": 0.05}
    return {**table, "server_optimizer": {"kind": "adamw", "learning_rate": rate, "schedule": schedule}}


def cell(label: str, table: harness.Table, noiseless: bool = False) -> harness.Cell:
    """Three rates around the middle one; further ones wait until their neighbour is the best."""
    count, tried = RATES + 2 * SPARE, grid(table["task"]["trained"])
    spare = [(place + 1, place) for place in reversed(range(SPARE))]
    spare += [(place - 1, place) for place in range(SPARE + RATES, count)]
    return harness.Cell(label, tuple(with_rate(table, rate) for rate in tried), noiseless, tuple(spare))


def grid(trained: str) -> list[float]:
    """All rates of a cell, in order."""
    count = RATES + 2 * SPARE
    return [RATE[trained] * RATIO ** (index - count // 2) for index in range(count)]


def scored(choice: harness.Table, part: harness.Part, seed: int) -> harness.Table:
    return {**choice, "task": {**choice["task"], "scored": part}}


STUDY = harness.Study("lora", scored, "nats", higher=False, data="poems")


def cells(s: Size) -> list[harness.Cell]:
    made = []
    for name in ROWS:
        made.append(cell(f"{name}, no privacy", plan_table(name, 8.0, s), noiseless=True))
        made += [cell(f"{name}, blt, epsilon {e:g}", plan_table(name, e, s)) for e in EPSILONS]
        made += [
            cell(f"{name}, Poisson (add_remove), epsilon {e:g}", plan_table(name, e, s, "poisson")) for e in EPSILONS
        ]
    return made


def row_of(label: str) -> str:
    return next(name for name in ROWS if label.startswith(f"{name}, "))


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


def gains(stored: harness.Table, label: str) -> list[float]:
    return [stored["base"]["nats"] - value for value in stored["cells"][label]["scores"]]


def rate_of(stored: harness.Table, label: str) -> float:
    """The chosen server rate."""
    return grid(ROWS[row_of(label)]["trained"])[stored["cells"][label]["choice"]]


def share_of_bytes(stored: harness.Table, label: str) -> float:
    """Of the messages of full fine-tuning, both ways."""
    return sum(stored["bytes"][row_of(label)]) / sum(stored["bytes"]["full"])


def kept(stored: harness.Table, label: str) -> harness.Verdict:
    """Whether the gain of `label` is half of that of full fine-tuning without privacy, paired by seed."""
    return harness.verdict(gains(stored, label), [gain / 2 for gain in gains(stored, WHOLE)])


def verdicts(stored: harness.Table) -> str:
    found = stored["cells"]
    whole = statistics.mean(gains(stored, WHOLE))
    private = [label for label in found if "epsilon" in label and row_of(label) != "full"]
    small = [label for label in private if share_of_bytes(stored, label) <= 0.05]
    reached = [label for label in small if kept(stored, label) in ("holds", "holds weakly")]
    lines = []
    if reached:
        each = "; ".join(f"{label} (**{kept(stored, label)}**)" for label in reached)
        lines.append(f"- The goal is reached by {each}.")
    else:
        lines.append("- The goal is **not reached**.")
    for label in private:
        share = statistics.mean(gains(stored, label)) / whole
        size = 100 * share_of_bytes(stored, label)
        what = f"{label}: {round(100 * share)} % of the gain with {size:.1f} % of the bytes"
        lines.append(f"- {what}; half of the gain: **{kept(stored, label)}**")
    for label in private:
        other = label.replace(row_of(label), "full", 1)
        if other in found:
            ahead = harness.verdict(found[label]["scores"], found[other]["scores"], higher=False)
            lines.append(f"- {label} beats {other}: **{ahead}**")
    return "\n".join(wrapped(line, "  ") for line in lines)


def why(stored: harness.Table) -> str:
    """What of the loss is due to few parameters, and what to noise; and what the score hides."""
    whole = statistics.mean(gains(stored, WHOLE))

    def best(words: str) -> str:
        shares = {
            label: statistics.mean(gains(stored, label)) / whole
            for label in stored["cells"]
            if words in label and row_of(label) != "full"
        }
        label = max(shares, key=lambda one: shares[one])
        return f"{100 * shares[label]:.0f} % ({label})"

    tang, song = stored["unknown"]
    text = "**Why.** "
    if any("no privacy" in label and row_of(label) != "full" for label in stored["cells"]):
        kept = best("no privacy")
        text += f"Without privacy the best of the small rows keeps {kept}: the rest is lost before any noise. "
    if any("epsilon" in label and row_of(label) != "full" for label in stored["cells"]):
        text += f"With privacy the best keeps {best('epsilon')}. "
    best_rate = {row_of(label): rate_of(stored, label) for label in stored["cells"] if "no privacy" in label}
    if best_rate.get("last layer norm, and bias", 0.0) > best_rate.get("rank 4, and bias", math.inf):
        text += "One rate serves adapters and bias, though the bias without adapters asks for a larger one. "
    lost = math.log((1 - tang) / (1 - song))
    return f"""{text}nats hides a part of every gain: {100 * tang:.1f} % of the symbols of Tang are unknown characters,
and {100 * song:.1f} % of those of the train poets. A model that learns this share gives the known characters less
probability, which costs {lost:.3f} nats. Only {Size(**stored["size"]).rounds} rounds and cohorts of one size were run:
larger cohorts would have less noise. Rows with privacy are compared under AdamW alone, whose steps noise flattens."""


def unknown_shares(s: Size) -> tuple[float, float]:
    """(of Tang, of the train poets): how many of the predicted symbols are unknown characters."""
    task = task_of({}, s, "")
    users = task.users()
    found = [task.public()[1], task.prepare(users.rows(np.arange(len(users))).columns)[1]]
    tang, song = (float((targets == UNKNOWN).sum() / (targets != PADDING).sum()) for targets in found)
    return tang, song


def page(stored: harness.Table) -> str:
    """docs/evidence/lora.md from what `main` stores."""
    s, found, base, sizes = Size(**stored["size"]), stored["cells"], stored["base"], stored["sizes"]
    whole = statistics.mean(gains(stored, WHOLE))
    public = (f"{base[score]:.4f}" for score in ("nats", "accuracy", "accuracy_characters"))
    nats, *right = public
    rows = [("base model", nats, "0", "0 %", "", *right, "")]
    for label, one in found.items():
        scores = [run["scores"] for run in one["runs"]]
        cpu = statistics.mean(run["cpu_seconds"] for run in one["runs"]) / s.rounds
        rows.append(
            (
                label,
                harness.show(one["scores"]),
                harness.show(gains(stored, label)),
                f"{round(100 * statistics.mean(gains(stored, label)) / whole)} %",
                f"{rate_of(stored, label):.2g}",
                f"{statistics.mean(each['accuracy'] for each in scores):.4f}",
                f"{statistics.mean(each['accuracy_characters'] for each in scores):.4f}",
                f"{cpu:.2f}",
            )
        )
    header = (
        *("row", "nats", "gain", "of full, no privacy", "rate", "accuracy", "characters"),
        "CPU seconds a round",
    )
    wire = [
        (
            name,
            f"{size:,} ({100 * size / sizes['full']:.1f} %)",
            "{:.1f}, {:.1f}".format(*(each / 1000 for each in stored["bytes"][name])),
            f"{100 * share_of_bytes(stored, f'{name}, '):.1f} %",
            f"{CLIP[name.removesuffix(', and bias')]:g}",
        )
        for name, size in sizes.items()
    ]
    run = f"""**Run here.** `poems`: a base model of one layer and width {s.width}, trained on Tang, which is public.
{s.rounds} rounds of {s.cohort} of {s.users:,} poets of Song, {s.separation} rounds apart; at most {s.most} windows of a
poet; delta 1e-5. Adapters stand on all four products of the layer; every such row trains the output bias too, because
the dynasties differ in how frequent characters are. Clip norms are 0.3 times the median norm of a tune poet's update at
the base model, measured for all but ranks 2 and 4, which lie between ranks 1 and 8. For each row {RATES} server rates
are tried, {RATIO} apart, and further ones while the first or last is the best. The server steps with AdamW, because the
gradients of adapters and of the bias of a rare character differ by
orders of magnitude; no other optimizer was tuned. All users of a round train in one pass, which gives the sums of the
product's nodes to round-off."""
    scores = """nats: mean cross-entropy of characters; lower is better. accuracy counts comma and full stop, and no
unknown character; "characters" leaves them out; to answer by position alone scores .1420 and .0071. CPU time is that of
the rehearsal, where one process trains the whole cohort. Rows that the command leaves out were not run."""
    messages = """All objects of the messages of one round with a node that trains one poet, as they are sent. The
frozen base model reaches a node once, outside of the messages."""
    return f"""# LoRA under user-level privacy

{wrapped(GOAL)}

{wrapped(SOURCE)}

{wrapped(run)}

{harness.markdown_table(header, rows)}

{wrapped(scores)}

{harness.markdown_table(("row", "numbers trained", "kB down, up", "of full", "clip norm"), wire)}

{wrapped(messages)}

**Verdict**, paired by seed:

{verdicts(stored)}

{wrapped(why(stored))}

{harness.footer(stored["command"], found, tuned=True)}
"""


GOAL = """**Goal.** Adapters whose messages are at most 5 % as large keep half of the gain of full fine-tuning without
privacy, at epsilon 4 and 8."""
SOURCE = """**Source.** Hu et al. 2022 (arXiv 2106.09685) for the adapters; the goal is ours."""


def wrapped(text: str, indent: str = "") -> str:
    """The text in lines of at most 120 characters."""
    joined = " ".join(text.split())
    return textwrap.fill(joined, 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


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
    harness.store("lora", stored)
    print(harness.write_page("lora", page(stored)))


if __name__ == "__main__":
    main()

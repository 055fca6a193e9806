"""What masks cost: CPU seconds of a node's reply, of the server's round and of the blinder's answer; bytes of a reply.

    python benchmarks/masked_sums.py --out benchmarks/results/masked_sums.md

Random updates, one user a node. A node's figure has the digest of the model that it was sent. The server's is 200
replies read and added, the answer checked, the masks taken off; training, noise, steps and disks are those of every
run and are not in it. Best of `--repeat` rounds, one thread; a node's reply is the median of a round's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fieldfare.costing import cost_with_resolution, privatiser_of
from fieldfare.masking.boxes import read_key
from fieldfare.masking.words import RINGS
from fieldfare.plan import Plan
from fieldfare_client.blinder import Blinder
from fieldfare_client.masking import NODE_KEY, make_node_key, mask_reply
from fieldfare_flower.masked import Masking, MasksAsked, digest_of_instruction
from fieldfare_flower.messages import HEADER, Occasion, TrainReply
from fieldfare_server.run.round.masked import MaskedSum

PLAN = Plan.parse(
    {
        "privacy": {"population": "people", "noise_multiplier": 8.0, "delta": 1e-6},
        "run": {"task": "digits", "rounds": 8, "cohort": 200},
        "mechanism": {"kind": "independent"},
        "aggregation": {"kind": "masked", "least_nodes": 2},
    }
)


def bytes_of(content: RecordDict) -> int:
    """What travels of a message's content."""
    return sum(len(each.deflate()) for each in get_all_nested_objects(content).values())


def measure(numel: int, nodes: int, round: int) -> dict[str, float]:
    """CPU seconds of each party in one round, and bytes of a reply more than a plain one has."""
    occasion, generator = Occasion("bench", round, 0), np.random.default_rng(round)
    update = generator.normal(0, numel**-0.5, numel).astype(np.float32)
    with tempfile.TemporaryDirectory() as directory:
        blinder = Blinder(Path(directory))
        plan, cost = PLAN.digest(), cost_with_resolution(PLAN, {}, PLAN.riders.joint_bound, numel, PLAN.most_users)
        blinder.approve(plan, 2, numel)
        ring, sent = privatiser_of(PLAN, cost, numel), RecordDict()
        sent["model"], sent[HEADER] = ArrayRecord([update]), ConfigRecord(dict(occasion.to_config()))
        Masking(blinder.public_key, ring.spacing_log2, ring.bits, plan).write(sent)
        instruction = digest_of_instruction(sent)
        files = [Path(directory) / f"{node}.key" for node in range(nodes)]
        blinder.admit({make_node_key(file): file.name for file in files})
        about = MasksAsked("bench", round, 0, numel, ring.bits, plan, instruction)
        total = MaskedSum(about, blinder.hello("bench", plan).nodes)
        node_seconds, server_seconds = [], 0.0
        for node in range(nodes):
            context = Context(1, node, {NODE_KEY: str(files[node])}, RecordDict(), {})
            began = time.process_time()
            masking = Masking.read(sent)
            reply = mask_reply(masking, context, cost, occasion, update, 1, ())
            node_seconds.append(time.process_time() - began)
            if node == 0:  # as it travels: the arrays of a message from a network are bytes
                plain = TrainReply(occasion, {"weight": update}, 1).write()
                more = bytes_of(reply) - bytes_of(plain)
            began = time.process_time()
            if not total.add(reply, 1, node):
                raise RuntimeError(f"a reply was refused: {total.rejects}")
            server_seconds += time.process_time() - began
        asked = total.asked
        began = time.process_time()
        answer = blinder.answer(asked.write())
        blinder_seconds = time.process_time() - began
        began = time.process_time()
        opened = total.words - asked.read_answer(answer, read_key(blinder.public_key)[1])[0]
        server_seconds += time.process_time() - began
    cells = np.rint(update.astype(np.float64) / 2.0**ring.spacing_log2)
    if not np.array_equal(opened.view(RINGS[ring.bits][1]), cells.astype(np.int64) * nodes):
        raise RuntimeError("the opened sum is not the sum")
    return {
        "node": statistics.median(node_seconds),
        "server": server_seconds,
        "blinder": blinder_seconds,
        "bytes": more,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--numel", type=int, nargs="+", default=[10**6, 10**7])
    options = parser.parse_args()
    lines = [
        f"CPU seconds of one round of {options.nodes} nodes with masked sums, by `benchmarks/masked_sums.py` "
        f"(best of {options.repeat}; of the nodes the median; {time.strftime('%-d %B %Y')}, "
        f"load {os.getloadavg()[0]:.1f}).",
        "",
        "| parameters | a node's reply | the server | the blinder | bytes of a reply, beyond a plain one's |",
        "|---|---|---|---|---|",
    ]
    for numel in options.numel:
        rounds = [measure(numel, options.nodes, round) for round in range(options.repeat)]
        best = {name: min(each[name] for each in rounds) for name in rounds[0]}
        lines.append(
            f"| {numel:.0e} | {best['node']:.4f} | {best['server']:.3f} | {best['blinder']:.3f} | {best['bytes']:.0f} |"
        )
    lines += ["", "A node's reply includes the digest of its instruction, and not what writing it to a network costs."]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:  # in its place: other measurements follow there
        others = options.out.read_text().partition("\n## ")[1:] if options.out.exists() else ()
        options.out.write_text(text + "".join(others))


if __name__ == "__main__":
    main()

"""How many vectors of the model's size a server holds at most in a round, by the kernel's own count of a process."""

from __future__ import annotations

import functools
import gc
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, RecordDict

from fieldfare.clipping import Flat
from fieldfare.schema import Schema
from fieldfare_flower import local_grid
from fieldfare_flower.npy import write_array
from fieldfare_flower.own_data import Tally
from fieldfare_server.run.round.dialects import read_plain_reply
from fieldfare_server.run.round.own_model import OwnModel
from fieldfare_server.run.round.roles import Roles

SERVER = """
import json, logging, sys, tempfile
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
import fieldfare as ff
from fieldfare.schema import Schema, pseudonyms
from fieldfare_flower.messages import HEADER, REPORT, UPDATE, Occasion, write_users
from fieldfare_flower.npy import write_array
from fieldfare_server.run.round import commits

commits.GROUP_WORK = 0.0  # each round by itself: what a group holds is bounded by its time
logging.getLogger("flwr").setLevel(logging.ERROR)

def held(name):
    return 1024 * int(open("/proc/self/status").read().split(name)[1].split()[0])

def array(numbers):
    return write_array(np.full(numbers, 1e-4, np.float32))

class Nodes(ff.LocalGrid):
    "What the nodes of this process need in training is not counted; their replies are."
    peak = 0

    def answer(self, message):
        self.peak = max(self.peak, held("VmHWM:"))
        reply = super().answer(message)
        open("/proc/self/clear_refs", "w").write("5")
        return reply

def run(kind, numbers):
    app = ClientApp(mods=[ff.masked] if kind == "masked" else [])

    @app.query("users")
    def users(message, context):
        return Message(write_users(pseudonyms([str(context.node_id)]), Schema(("w",), ((numbers,),))), reply_to=message)

    @app.train()
    def train(message, context):
        content = RecordDict({"arrays": ArrayRecord({"w": array(numbers)})})
        if kind == "cohort":
            header = ConfigRecord(Occasion.read(message.content).to_config())
            report = MetricRecord({"users": 1, "counts": []})
            content = RecordDict({HEADER: header, UPDATE: content["arrays"], REPORT: report})
        return Message(content, reply_to=message)

    more = {"aggregation": {"kind": "masked", "least_nodes": 2}} if kind == "masked" else {}
    with tempfile.TemporaryDirectory() as home:
        grid = Nodes(app, nodes=6)
        open("/proc/self/clear_refs", "w").write("5")
        before = held("VmRSS:")
        initial = ArrayRecord({"w": array(numbers)})
        ff.PrivateStrategy(
            noise_multiplier=1.0, delta=1e-5, cohort=6, clip=1.0, mechanism="independent", population="p", budget=1e6,
            dialect="cohort" if kind == "cohort" else "plain", home=home, accept_delta=True,
            participation={"scheme": "min-separation", "separation": 1, "max_participations": 2}, **more,
        ).start(grid, initial, 2)
        return (max(grid.peak, held("VmHWM:")) - before) / (4 * numbers)

run(sys.argv[1], 10)  # what the first run of a process loads
print(json.dumps(run(sys.argv[1], 4_000_000)))
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the kernel counts no peaks")
@pytest.mark.parametrize(
    ("kind", "most"),
    [
        # The app's own initial arrays, the flat ones, the model, what is sent of it, a reply, and the sum, of twice the
        # bytes.
        ("plain", 7.5),
        # What is sent shares the model's memory within a process.
        ("cohort", 6.5),
        # The closed words, in case the rest fails; those that are opened; and the numbers that they are read as.
        ("masked", 8.5),
    ],
)
def test_a_round_holds_few_vectors_of_the_models_size_however_many_nodes_answer(kind: str, most: float) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-c", SERVER, kind], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert 5 < json.loads(done.stdout.splitlines()[-1]) <= most


SCHEMA = Schema(("w",), ((3,),))
MODEL = OwnModel({"w": np.zeros(3, np.float32)}, Roles({"w": "trained"}, {}))
READ_PLAINLY = functools.partial(read_plain_reply, MODEL, SCHEMA, MODEL.values, Flat(norm=1.0), None)


@pytest.mark.parametrize(
    "read", [lambda reply: READ_PLAINLY(reply.content, 1), Tally().read], ids=["plain", "own data"]
)
def test_a_reply_goes_with_the_last_who_holds_it(read: Callable[[Message], object]) -> None:
    local_grid.assume_task_identity()
    reply = Message(RecordDict({"arrays": ArrayRecord({"w": write_array(np.ones(3, np.float32))})}), 2, "train")
    held = weakref.ref(reply.content)
    gc.disable()  # which would find it, at some time
    try:
        read(reply)
        del reply
        assert held() is None
    finally:
        gc.enable()

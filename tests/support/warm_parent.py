"""A warm parent without Flower, whose forks do what a test asks for: `warm_parent.py FOLDER`."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch

from fieldfare_flower.warm import parent, stand_in


def draw() -> list[float]:
    return [random.random(), float(np.random.random()), float(torch.rand(1))]


def tell() -> dict[str, object]:
    kinds = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            kinds += [os.readlink(f"/proc/self/fd/{name}")] * (int(name) > 2)
    return {
        "arguments": sys.argv,
        "folder": os.getcwd(),
        "variable": os.environ.get("VARIABLE"),
        "said": sys.stdin.read(),
        "drawn": draw(),
        "sockets": sum(kind.startswith("socket:") for kind in kinds),
        "handles": [kind for kind in kinds if "pidfd" in kind or "pipe:" in kind],
        "process": os.getpid(),
        "parent": os.getppid(),
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    draw()
    torch.set_num_threads(1)
    parent.take_task(parent.serve(parent.listen(Path(sys.argv[1]) / stand_in.SOCKET)), 3)
    if sys.argv[1] == "sleep":
        print(os.getpid(), flush=True)
        time.sleep(600)
    elif sys.argv[1] == "die":
        os.kill(os.getpid(), 9)
    else:
        json.dump(tell(), sys.stdout)
        print("to standard error", file=sys.stderr)
        sys.exit(7)

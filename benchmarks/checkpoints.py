"""What a round's checkpoint writes of the noise, and what that costs: `python benchmarks/checkpoints.py --help`.

For each mechanism: bytes of the noise's state, bytes a round that went to disk while every checkpoint held it, bytes a
round now (`run.noise_state`), and CPU milliseconds of noise and of checkpoint, means over `--rounds` rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from fieldfare import mechanisms
from fieldfare.noise import SecureNoise
from fieldfare.privatise import Privatiser
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.run.round.noise_state import NoiseState
from fieldfare_server.run.round.running_noise import RunningNoise

KINDS: dict[str, dict[str, Any]] = {
    "independent": {"kind": "independent"},
    "blt, 3 buffers": {"kind": "blt", "buffers": 3},
    "nu": {"kind": "nu", "nu": 0.001},
    "tree, online": {"kind": "tree", "estimator": "online"},
    "tree, plain": {"kind": "tree", "estimator": "plain"},
    "banded, 16": {"kind": "banded", "bands": 16},
    "banded, 64": {"kind": "banded", "bands": 64},
    "banded-inverse, 16": {"kind": "banded-inverse", "bands": 16},
}


def measure(plan: dict[str, Any], numel: int, rounds: int) -> dict[str, float]:
    """One mechanism, in a directory that is removed."""
    mechanism = mechanisms.build(plan, 2048)
    key = bytes(range(32))
    privatiser = Privatiser.of("grid", 1.0, 1.0, numel, 1, float(mechanism.row_norms().max()))
    noise = SecureNoise(key, threads=1)
    running = RunningNoise(privatiser, privatiser.stream(mechanism, numel, noise), mechanism.row_norms())
    total, params = torch.zeros(numel, dtype=torch.float64), torch.zeros(numel)
    drawing = keeping = wrote = 0.0
    with tempfile.TemporaryDirectory() as directory:
        files = RunFiles(Path(directory), "run", keep=2)
        files.create(key)
        state, seen = NoiseState(running, files, None), set()
        for round in range(rounds):
            began = time.process_time()
            running.privatise(total)
            drawn = time.process_time()
            tensors, facts = state.take()
            named = {f"noise.{name}": tensor for name, tensor in tensors.items()}
            digest = files.write(round, {"params": params, **named}, {"noise": facts})
            written = sum(tensor.nbytes for tensor in tensors.values())
            for path in (files.directory / "noise").glob("*.safetensors"):
                if path.name not in seen:
                    seen.add(path.name)
                    written += path.stat().st_size
            files.promote(digest)
            keeping += time.process_time() - drawn
            drawing += drawn - began
            wrote += written
        stream = running.stream
        assert stream is not None
        return {
            "state_mb": stream.state_bytes / 1e6,
            "before_mb_a_round": stream.state_bytes / 1e6,
            "now_mb_a_round": wrote / rounds / 1e6,
            "noise_cpu_ms": 1e3 * drawing / rounds,
            "checkpoint_cpu_ms": 1e3 * keeping / rounds,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numel", type=lambda text: int(float(text)), default=10**6)
    parser.add_argument("--rounds", type=int, default=130)
    parser.add_argument("--only", default="", help="measure only names that contain this")
    parser.add_argument("--out", type=Path, help="write checkpoints.md and checkpoints.json to this directory")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, dict[str, float]] = {}
    load = [os.getloadavg()[0]]
    for name, plan in KINDS.items():
        if chosen.only in name:
            rows[name] = {key: round(value, 3) for key, value in measure(plan, chosen.numel, chosen.rounds).items()}
            print(f"{name}: {json.dumps(rows[name])}", flush=True)
            load.append(os.getloadavg()[0])
    about = {
        "command": f"python benchmarks/checkpoints.py --numel {chosen.numel:.0e} --rounds {chosen.rounds}",
        "machine": f"{os.cpu_count()} cores, torch {torch.__version__}, one thread",
        "load": f"{min(load):.1f} to {max(load):.1f}",
        "what": "float64 noise on the grid, parameters float32; the parameters themselves are not counted",
    }
    header = ["state, MB", "a round before, MB", "a round now, MB", "noise, CPU ms", "checkpoint, CPU ms"]
    lines = ["# Noise in checkpoints", "", *(f"- {k}: {v}" for k, v in about.items()), ""]
    lines += [f"| mechanism | {' | '.join(header)} |", "|---" * 6 + "|"]
    lines += [f"| {name} | {' | '.join(f'{value:,.2f}' for value in row.values())} |" for name, row in rows.items()]
    if chosen.out:
        (chosen.out / "checkpoints.md").write_text("\n".join(lines) + "\n")
        (chosen.out / "checkpoints.json").write_text(json.dumps({"about": about, "results": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()

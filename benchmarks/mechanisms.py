"""What one round of noise costs: time against `torch.randn` of that size in the same run, peak memory, and optimisers.

Every measurement is a fresh process. Within it, the compared programs take turns, so that a busy machine slows both;
the fastest turn of each counts, because it was disturbed least. Writes benchmarks/results/mechanisms.json and
mechanisms.md after every row, so that an interrupted run loses only one row.

    make bench-mechanisms                                          sizes 1e5 to 1e8, on one thread and on two
    make bench-mechanisms ARGS="--sizes 1e6 --threads 2"           any sizes
    make bench-mechanisms ARGS="--append --parts peers --sizes 1e8"    one more part; the other results stay
    make bench-mechanisms ARGS="--long"                            also the optimisations that take minutes

A measurement that does not fit into this machine's free memory, or into `--memory`, is named in the table and skipped.
Only this benchmark needs jax-privacy; where it is not installed, that part of the table says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mechanisms_tables import table

RESULTS = Path(__file__).parent / "results"
KEY = b"a fixed key: benchmark use only!"
ROUNDS = 2048
WARM = 1 << 20
"""Elements of the warm-up round: enough for every thread to allocate its scratch, 2 to 7 MB whatever the size."""
TIMED = 10**6
"""Least elements of a timed turn: a short one would measure the clock, and the code's way into the cache."""

# name, plan, largest ratio to torch.randn that the project aims at, how many rounds are averaged (trees are uneven)
STREAMS: list[tuple[str, dict[str, Any], float, int]] = [
    ("draw", {"kind": "independent"}, 1.2, 1),
    ("blt, 3 buffers", {"kind": "blt", "buffers": 3}, 1.5, 1),
    ("blt, 5 buffers", {"kind": "blt", "buffers": 5}, 2.0, 1),
    ("banded, 16", {"kind": "banded", "bands": 16}, 2.0, 1),
    ("banded, 64", {"kind": "banded", "bands": 64}, float("inf"), 1),
    ("tree, plain", {"kind": "tree", "estimator": "plain"}, 1.6, 16),
    ("tree, online", {"kind": "tree", "estimator": "online"}, 2.6, 16),
    ("nu, fast", {"kind": "nu", "nu": 0.001}, 2.0, 1),
]

SIX = {"separation": 314, "max_participations": 6}
# name, plan, rounds, participation, seconds aimed at, needs --long
BUILDS: list[tuple[str, dict[str, Any], int, dict[str, int] | None, float, bool]] = [
    *[(f"blt, {m} buffers", {"kind": "blt", "buffers": m}, 2048, None, 1.0, False) for m in (1, 3, 5, 8)],
    ("blt, auto", {"kind": "blt"}, 2048, None, 1.0, False),
    ("blt, 8 buffers, max", {"kind": "blt", "buffers": 8, "objective": "max"}, 2048, None, 1.0, False),
    *[(f"blt, {m} buffers, k = 6", {"kind": "blt", "buffers": m}, 2000, SIX, 3.0, False) for m in (1, 3, 5, 8)],
    ("blt, auto, max, k = 6", {"kind": "blt", "objective": "max"}, 2000, SIX, 3.0, False),
    *[(f"banded, {p}", {"kind": "banded", "bands": p}, 2048, None, 0.1, False) for p in (16, 64, 512)],
    ("nu, auto", {"kind": "nu", "nu": "auto"}, 2000, None, 0.2, False),
    ("tree sensitivity, k = 6", {"kind": "tree", "estimator": "plain", "nodes": "all"}, 2000, SIX, 2.0, False),
    ("dense", {"kind": "dense"}, 512, None, 20.0, False),
    ("dense, 2 048", {"kind": "dense"}, 2048, None, 300.0, True),
]

# what is compared (a name of STREAMS), the peer's matrix
PEERS: list[tuple[str, str]] = [
    ("blt, 3 buffers", "blt3"),
    ("blt, 5 buffers", "blt5"),
    ("banded, 16", "band16"),
    ("banded, 64", "band64"),
]


def aim_over_peer(size: int, compiled: bool) -> float:
    """How many times as fast as jax-privacy our default is meant to be; compiled: with that extra."""
    return (6.0 if compiled else 4.0) if size >= 10**7 else 1.0


PARTS = ("rounds", "releases", "peers", "builds")
"""What a report consists of, in the order in which it is measured."""
PATIENCE = 1800
"""Seconds after which one measurement is given up."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=lambda text: int(float(text)), default=[10**n for n in (5, 6, 7, 8)])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", default="", help="measure only names that contain this")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="measure only these")
    parser.add_argument("--name", default="mechanisms", help="of the report: one holds figures of one machine")
    parser.add_argument("--append", action="store_true", help="keep the existing results, except those measured again")
    parser.add_argument("--memory", type=float, default=1e6, help="most GB that one measurement may take")
    parser.add_argument("--long", action="store_true", help="also the optimisations that take minutes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compiled", action="store_true", help="with that extra; else as if it were missing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        request = json.loads(args.one)
        set_compiled(request.pop("compiled", False))
        print(json.dumps(CHILDREN[request.pop("what")](**request)))
        return
    report = begin(" ".join(["python benchmarks/mechanisms.py", *sys.argv[1:]]), args.append, args.name)
    for part in PARTS:
        if part in args.parts:
            MEASURES[part](args, report)
    print(table(report))


def set_compiled(now: bool) -> None:
    """Have this process compile its passes at once, or never: figures of a default are those without numba."""
    from fieldfare import privatise
    from fieldfare.noise import staircase

    for each in (staircase._climb, privatise._add_anchored):
        each._left = 0 if now else sys.maxsize


def begin(command: str, append: bool, name: str = "mechanisms") -> dict[str, Any]:
    """An empty report, or the last one, to be added to."""
    here, kept = machine(), RESULTS / f"{name}.json"
    if not append or not kept.exists():
        return {"name": name, "command": command, "machine": here, **{part: [] for part in PARTS}}
    old: dict[str, Any] = json.loads(kept.read_text())
    for what in ("processor", "cores", "python", "torch", "numpy"):
        if old["machine"][what] != here[what]:
            raise SystemExit(f"--append: the results there are of {what} {old['machine'][what]}, this is {here[what]}")
    known = old["command"].split("; ")
    return {
        **{part: [] for part in PARTS},
        **old,
        "name": name,
        "command": "; ".join([*known, command] if command not in known else known),
        "machine": here,
    }


def keep(report: dict[str, Any], part: str, row: dict[str, Any]) -> None:
    """Add `row`, in place of an older one of the same name, size and threads, and write the results."""

    def place(r: dict[str, Any]) -> tuple[Any, ...]:
        return r.get("size", 0), r.get("threads", 0), r.get("rounds", 0), r["name"]

    others = [old for old in report[part] if place(old) != place(row)]
    report[part] = sorted([*others, row], key=lambda r: place(r)[:2])
    figures = row.get("skipped") or ", ".join(f"{k} {v:.3g}" for k, v in row.items() if isinstance(v, float))
    print(f"{row['name']}: {figures}", file=sys.stderr, flush=True)
    RESULTS.mkdir(exist_ok=True)
    for name, text in (("json", json.dumps(report, indent=1, allow_nan=False) + "\n"), ("md", table(report))):
        new = RESULTS / f"{report['name']}.{name}.new"
        new.write_text(text)
        new.replace(RESULTS / f"{report['name']}.{name}")


def measure_rounds(args: argparse.Namespace, report: dict[str, Any]) -> None:
    for size in args.sizes:
        for threads in args.threads:
            for name, plan, target, averaged in STREAMS:
                if args.only in name:
                    request = {"plan": plan, "averaged": averaged, "device": args.device, **common(args, size)}
                    row = child("round", threads, **request)
                    target_ratio = None if target == float("inf") else target
                    keep(
                        report,
                        "rounds",
                        {"name": name, "size": size, "threads": threads, "target": target_ratio, **row},
                    )


def measure_releases(args: argparse.Namespace, report: dict[str, Any]) -> None:
    for size in args.sizes:
        for threads in args.threads:
            for name, plan, _, averaged in STREAMS:
                if args.only in name and name != "banded, 64":  # its state alone is half a kilobyte a parameter
                    row = child("release", threads, plan=plan, averaged=averaged, **common(args, size))
                    place = {"name": name, "size": size, "threads": threads, "compiled": args.compiled}
                    keep(report, "releases", {**place, **row})


def measure_builds(args: argparse.Namespace, report: dict[str, Any]) -> None:
    for name, plan, rounds, participation, target, is_long in BUILDS:
        if args.only in name and (args.long or not is_long):
            row = child("build", max(args.threads), plan=plan, rounds=rounds, participation=participation)
            keep(report, "builds", {"name": name, "rounds": rounds, "target_s": target, **row})


def measure_peers(args: argparse.Namespace, report: dict[str, Any]) -> None:
    plans = {name: plan for name, plan, _, _ in STREAMS}
    for size in args.sizes:
        for threads in args.threads:
            for name, matrix in PEERS:
                if args.only in name:
                    row = child("jax", threads, matrix=matrix, plan=plans[name], **common(args, size))
                    aim = aim_over_peer(size, args.compiled)
                    keep(report, "peers", {"name": name, "size": size, "threads": threads, "target_times": aim, **row})


MEASURES: dict[str, Callable[[argparse.Namespace, dict[str, Any]], None]] = {
    "rounds": measure_rounds,
    "releases": measure_releases,
    "peers": measure_peers,
    "builds": measure_builds,
}


def common(args: argparse.Namespace, size: int) -> dict[str, Any]:
    """Turns of each: as many as requested, and fewer where one takes seconds."""
    repeats = args.repeats if size < 10**8 else min(args.repeats, 3)
    return {"size": size, "compiled": args.compiled, "repeats": repeats, "memory": args.memory}


def require_memory(megabytes: float, most_gb: float) -> None:
    """Exit with a reason for the table when the machine, or `--memory`, leaves too little room."""
    free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    free_gb = int(free.split()[1]) * 1024 / 1e9
    if megabytes / 1e3 > min(0.9 * free_gb, most_gb):
        raise SystemExit(f"needs {megabytes / 1e3:.1f} GB of memory, {min(free_gb, most_gb):.1f} GB are to be had")


def child(what: str, threads: int, **request: Any) -> dict[str, Any]:
    """One measurement in a process of its own."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
    call = [sys.executable, __file__, "--one", json.dumps({"what": what, "threads": threads, **request})]
    try:
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return {"skipped": f"not done after {PATIENCE} s"}
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return {"skipped": last[0]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def one_round(
    plan: dict[str, Any], size: int, averaged: int, repeats: int, threads: int, device: str, memory: float
) -> dict[str, Any]:
    """Time of a round, the mean of `averaged`, over one `torch.randn`: into new and old vectors, and added to a sum.

    Memory is that of the state and the sum that is released.
    """
    import torch

    from fieldfare import mechanisms
    from fieldfare.noise import SecureNoise

    torch.set_num_threads(threads)
    if plan["kind"] not in mechanisms.kinds():
        return {"skipped": f"no mechanism of kind {plan['kind']!r} is installed"}
    mechanism = mechanisms.build(plan, ROUNDS)
    vector = size * 4 / 1e6
    if device == "cpu":
        require_memory((mechanism.buffers + 4) * vector, memory)
    noise = SecureNoise(KEY, device)
    mechanism.stream(WARM, noise, device=device).add_to(torch.zeros(WARM, device=device))
    before = resident("VmRSS")
    reset_peak()
    stream = mechanism.stream(size, noise, device=device)
    total = torch.zeros(size, device=device)
    for _ in range(max(averaged, mechanism.buffers + 1)):
        stream.add_to(total, 0.5)
    peak = resident("VmHWM") - before
    out = torch.zeros(size, device=device)
    wait: Callable[[], None] = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    turns: dict[str, list[float]] = {"randn": [], "normal_": [], "next": [], "next_into": [], "add_to": []}
    for _ in range(repeats):
        for name, count, call in (
            ("randn", 1, lambda: torch.randn(size, device=device)),
            ("next", averaged, stream.next),
            ("normal_", 1, out.normal_),
            ("next_into", averaged, lambda: stream.next(out)),
            ("add_to", averaged, lambda: stream.add_to(total, 0.5)),
        ):
            if stream.round + averaged > ROUNDS:
                stream.skip(0)
            wait()
            start = time.perf_counter()
            for _ in range(count):
                call()
            wait()
            turns[name].append((time.perf_counter() - start) / count)
    ms = {name: 1e3 * min(seconds) for name, seconds in turns.items()}
    return {
        "ms": ms["next_into"],
        "ms_new_vector": ms["next"],
        "ms_added": ms["add_to"],
        "randn_ms": ms["normal_"],
        "randn_ms_new_vector": ms["randn"],
        "ratio": ms["next_into"] / ms["normal_"],
        "ratio_new_vector": ms["next"] / ms["randn"],
        "ratio_added": ms["add_to"] / ms["normal_"],
        "buffers": mechanism.buffers,
        "peak_mb": peak,
        "peak_vectors_beside_state": peak / vector - mechanism.buffers,
    }


def one_release(
    plan: dict[str, Any], size: int, averaged: int, repeats: int, threads: int, memory: float
) -> dict[str, Any]:
    """What a server does in a round by default: float64 noise, added to a sum on a grid; over one `torch.randn`."""
    import torch

    from fieldfare import mechanisms
    from fieldfare.noise import SecureNoise
    from fieldfare.privatise import Privatiser

    torch.set_num_threads(threads)
    mechanism = mechanisms.build(plan, ROUNDS)
    vector = size * 8 / 1e6
    require_memory((mechanism.buffers + 3) * vector, memory)
    release = Privatiser.of("grid", 1.0, 1.0, size, 1, float(mechanism.row_norms().max()))
    release.privatise(torch.zeros(WARM, dtype=torch.float64), release.stream(mechanism, WARM, SecureNoise(KEY)))
    before = resident("VmRSS")
    reset_peak()
    stream = release.stream(mechanism, size, SecureNoise(KEY))
    total = torch.zeros(size, dtype=torch.float64)
    for _ in range(max(averaged, mechanism.buffers + 1)):
        release.privatise(total, stream)
    peak = resident("VmHWM") - before
    double, single = torch.zeros(size, dtype=torch.float64), torch.zeros(size)
    sums, ready = torch.zeros_like(double), torch.randn(size, dtype=torch.float64)
    assert release.grid is not None
    grid = release.grid
    turns: dict[str, list[float]] = {name: [] for name in ("release", "float64", "float32", "grid", "add")}
    for _ in range(repeats):
        for name, count, call in (
            ("release", averaged, lambda: release.privatise(total, stream)),
            ("float64", 1, double.normal_),
            ("float32", 1, single.normal_),
            ("grid", 1, lambda: grid.add_noise_(sums, ready, release.std)),
            ("add", 1, lambda: sums.add_(ready)),
        ):
            if stream.round + averaged > ROUNDS:
                stream.skip(0)
            count *= max(1, TIMED // size)
            start = clock(threads)
            for _ in range(count):
                call()
            turns[name].append((clock(threads) - start) / count)
    ms = {name: 1e3 * statistics.median(seconds) for name, seconds in turns.items()}
    return {
        "ms": ms["release"],
        "randn_float64_ms": ms["float64"],
        "randn_float32_ms": ms["float32"],
        "ratio_float64": ms["release"] / ms["float64"],
        "ratio_float32": ms["release"] / ms["float32"],
        "grid_ms": ms["grid"],
        "add_ms": ms["add"],
        "ratio_add": ms["grid"] / ms["add"],
        "load_average": os.getloadavg()[0],
        "buffers": mechanism.buffers,
        "peak_mb": peak,
        "peak_vectors_beside_state": peak / vector - mechanism.buffers,
    }


def one_build(plan: dict[str, Any], rounds: int, participation: dict[str, int] | None, threads: int) -> dict[str, Any]:
    """Seconds from the plan to the mechanism and its sensitivity, imports done."""
    import torch

    from fieldfare import mechanisms
    from fieldfare.participation import MinSeparation, Single

    torch.set_num_threads(threads)
    if plan["kind"] not in mechanisms.kinds():
        return {"skipped": f"no mechanism of kind {plan['kind']!r} is installed"}
    who = Single() if participation is None else MinSeparation(**participation)
    start = time.perf_counter()
    mechanism = mechanisms.build(plan, rounds, who)
    sensitivity = mechanism.sensitivity(who)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "sensitivity": float(sensitivity),
        "bound": sensitivity.bound,
        "mean_loss": mechanism.mean_error(rounds, who) ** 2,
        "max_loss": mechanism.max_error(rounds, who) ** 2,
        "buffers": mechanism.buffers,
    }


def one_jax(matrix: str, plan: dict[str, Any], size: int, repeats: int, threads: int, memory: float) -> dict[str, Any]:
    """jax-privacy's own noise step, compiled, and ours in turns of a few rounds, on as many cores as threads.

    Each adds its noise to an update, as it does by default: it in float32; ours in float64, rounded to a grid. Ours in
    float32 without rounding is measured as well. Its matrix has our shape; the values do not change its cost. Memory is
    measured one after the other, and both its ways are: `update` as it is, and with its old state donated to it.
    """
    if hasattr(os, "sched_setaffinity"):  # XLA takes every core that it may use
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    try:
        import jax
        import jax.numpy as jnp
        from jax_privacy import noise_addition
        from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz
    except ImportError as error:
        return {"skipped": f"{error}; `pip install jax-privacy` beside fieldfare to compare"}
    import torch

    from fieldfare import mechanisms
    from fieldfare.noise import SecureNoise
    from fieldfare.privatise import Privatiser

    torch.set_num_threads(threads)
    mechanism = mechanisms.build(plan, ROUNDS)
    needed = (5 * mechanism.buffers + 14) * size * 4 / 1e6  # old state, new state, both of ours; what XLA sets aside
    require_memory(needed, memory)
    if matrix.startswith("blt"):
        count = int(matrix[3:])
        decay = [0.999, 0.98, 0.9, 0.7, 0.4][:count]
        strategy = buffered_toeplitz.BufferedToeplitz.build(decay, [0.05] * count, dtype=jnp.float32)
        noising = strategy.inverse_as_streaming_matrix()
    else:
        bands = int(matrix[4:])
        noising = toeplitz.inverse_as_streaming_matrix(jnp.asarray([0.9**i for i in range(bands)]))
    privatizer = noise_addition.matrix_factorization_privatizer(
        noising, stddev=1.0, prng_key=jax.random.key(0), dtype=jnp.float32
    )
    peaks: dict[str, float] = {}
    release = Privatiser.of("grid", 1.0, 1.0, size, 1, float(mechanism.row_norms().max()))
    release.privatise(torch.zeros(WARM, dtype=torch.float64), release.stream(mechanism, WARM, SecureNoise(KEY)))
    before = resident("VmRSS")
    reset_peak()
    default, sums = release.stream(mechanism, size, SecureNoise(KEY)), torch.zeros(size, dtype=torch.float64)
    for _ in range(mechanism.buffers + 1):
        release.privatise(sums, default)
    peaks["ours"] = resident("VmHWM") - before
    stream, total = mechanism.stream(size, SecureNoise(KEY)), torch.zeros(size)
    for _ in range(mechanism.buffers + 1):
        stream.add_to(total)

    before = resident("VmRSS")
    gradient = jnp.zeros(size, jnp.float32)
    state = privatizer.init(gradient)
    seconds: dict[str, list[float]] = {"plain": [], "donated": [], "default": [], "float32": []}

    def turn(name: str, call: Callable[[], Any]) -> None:
        rounds = 4 * max(1, TIMED // size) if size < 10**8 else 1
        start = clock(threads)
        for _ in range(rounds):
            call()
        seconds[name].append((clock(threads) - start) / rounds)
        time.sleep(0.2)  # XLA frees old states after it has answered: that is not to run in our turn

    def theirs() -> None:
        nonlocal state
        noisy, state = update(gradient, state)
        jax.block_until_ready((noisy, state))

    for name, options in (("donated", {"donate_argnums": 1}), ("plain", {})):  # the last is the one that turns compare
        update = jax.jit(privatizer.update, **options)
        theirs()
        reset_peak()
        for _ in range(repeats):
            turn(name, theirs)
        peaks[name] = resident("VmHWM") - before

    for _ in range(repeats):
        turn("plain", theirs)
        turn("default", lambda: release.privatise(sums, default))
        turn("float32", lambda: stream.add_to(total))
    median = {name: statistics.median(turns) for name, turns in seconds.items()}
    return {
        "ms": 1e3 * median["plain"],
        "donated_ms": 1e3 * median["donated"],
        "ours_ms": 1e3 * median["default"],
        "ours_float32_ms": 1e3 * median["float32"],
        "times_faster": median["plain"] / median["default"],
        "times_faster_float32": median["plain"] / median["float32"],
        "load_average": os.getloadavg()[0],
        "peak_mb": peaks["plain"],
        "donated_peak_mb": peaks["donated"],
        "ours_peak_mb": peaks["ours"],
        "memory_ratio": peaks["ours"] / peaks["plain"],
    }


CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {
    "round": one_round,
    "release": one_release,
    "build": one_build,
    "jax": one_jax,
}


def clock(threads: int) -> float:
    """Seconds: of CPU time where one thread does all the work, so that other load on the machine counts less."""
    return time.process_time() if threads == 1 else time.perf_counter()


def resident(field: str) -> float:
    """VmRSS or VmHWM (its peak) of this process in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"/proc/self/status has no {field}: memory is measured on Linux only")


def reset_peak() -> None:
    """Let VmHWM start again from the present size (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def machine() -> dict[str, Any]:
    import numpy
    import torch

    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


if __name__ == "__main__":
    main()

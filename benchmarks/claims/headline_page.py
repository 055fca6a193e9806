"""benchmarks/results/claims/headline.md and its figures."""

from __future__ import annotations

import json
import math
import shlex
import textwrap
from collections.abc import Callable

import harness
import headline_seeds
from charged import VERIFIED
from headline_plans import ALLOCATED, BANDED_BINS, CYCLIC, NO_PRIVACY, NU_BINS, POISSON, ROWS
from headline_seeds import aheads, epsilons_of
from paired import cross
from reductions import reduction

NOISE = "Noise of these plans (root-mean-square of a prefix sum, per coordinate, clip norm 1):"
SAMPLED = (CYCLIC, ALLOCATED, NU_BINS, BANDED_BINS)
"""Rows with sampling, other than amplified DP-SGD."""


def page() -> str:
    """benchmarks/results/claims/headline.md: scores of every setting that was run, then noise alone."""
    shown = []
    for path in sorted(harness.RESULTS.glob("headline-*.json")):
        if path.stem != "headline-noise":
            stored = json.loads(path.read_text())
            shown.append(score_section(path.stem, stored))
    return f"""# Correlated noise against amplified DP-SGD

**Claim.** Correlated noise beats DP-SGD with amplification by sampling from epsilon 4 on, and DP-SGD wins below.

**Source.** Choquette-Choo et al. 2023 (arXiv 2310.06771), figure 4. Printed there: CIFAR-10 at epsilon 4, 63.02 (nu)
against 62.02 (DP-SGD); at epsilon 10, 69.26 (nu) against 70.83 (dense, several epochs). StackOverflow at epsilon 2,
23.6 (nu) against 22.6; at epsilon 8, 25.3.

**Two promises.** Rows marked *add_remove* hide whether a user is in the data at all, and need users who can be called
at any time, because the dice decide who takes part. The others hide the values that a user sends (*zero_out*): who
takes part is public. An epsilon of the one is not an epsilon of the other.

{chr(10).join(shown)}
{noise_section()}"""


def score_name(stored: harness.Table) -> str:
    s = stored["setting"]
    return str(s["score"]) if s["higher"] else f"{s['score']} (lower is better)"


def score_section(name: str, stored: harness.Table) -> str:
    s, cells, epsilons = stored["setting"], stored["cells"], epsilons_of(stored)
    rows = [row for row in ROWS if any(f"{row}, epsilon {e:g}" in cells for e in epsilons)]

    def each(value: Callable[[str, float], str], of: list[str]) -> list[tuple[str, ...]]:
        return [(r, *(value(r, e) if f"{r}, epsilon {e:g}" in cells else "not run" for e in epsilons)) for r in of]

    def scores(row: str, epsilon: float) -> list[float]:
        return list(cells[f"{row}, epsilon {epsilon:g}"]["scores"])

    def shown(row: str, epsilon: float) -> str:
        return harness.show(scores(row, epsilon))

    def paired(row: str, epsilon: float) -> str:
        return harness.show([a - b for a, b in zip(scores(row, epsilon), scores("nu", epsilon), strict=True)])

    def noise(row: str, epsilon: float) -> str:
        return f"{cells[f'{row}, epsilon {epsilon:g}']['runs'][0]['prefix_noise_rms']:.2f}"

    header = ("row", *(f"epsilon {e:g}" for e in epsilons))
    command = f"python benchmarks/claims/headline.py --data {stored['data']} --size {stored['size']}"
    command += f" --base {base}" if (base := s["task"].get("base")) else ""
    seeds = len(cells[NO_PRIVACY]["scores"])
    command += f" --seeds {seeds}" if seeds != 3 else ""
    command = stored.get("command", command)
    times = -(-s["rounds"] // s["separation"])
    rate = s["cohort"] / s["users"]
    again = "at each rate too, twice the tuning of other rows" if s.get("both") else "in one more run"
    run = f"""**Run here.** {reduction(stored)}{s["rounds"]} rounds of {s["cohort"]} of {s["users"]:,} users,
{s["separation"]} rounds apart and so at most {times} times each; sampled rows call every user with probability {rate:g}
a round, or in one secret round of every {round(1 / rate)}: the same of each block (balls in bins) or a fresh one
(random allocation). Clip norm {s["clip"]:g}, delta {s["delta"]:g}. For each cell three server learning rates are tried,
2.5 apart around one that is proportional to 1 / noise (the factor was found with `nu` on tune users), and a fourth
where the first or last of the three is the best. Momentum is {s["momentum"]:g}; for independent rows it is 0, as in the
paper, and {s["momentum"]:g} {again}. Scored: {seeds} seeds on test users.
Without privacy, clipped: {harness.show(cells[NO_PRIVACY]["scores"])}. {base_text(stored)}
The intervals are over seeds; the test rows, which all cells share, add their own."""
    if any(f"{row}, epsilon {e:g}" not in cells for row in rows for e in epsilons):
        run += " Cells that say *not run* were left out to save time (`--rows`, `--epsilons`)."
    if edges := [label for label, cell in cells.items() if cell["edge"]]:
        run += f" At an edge of their grid, and so not tuned to the end: {'; '.join(edges)}."
    if missing := [row for row in ROWS if row not in rows]:
        run += f" Rows that were not run: {'; '.join(missing)}."
        if "command" not in stored:
            command += f" --epsilons {' '.join(f'{e:g}' for e in epsilons)} --rows {shlex.join(rows)}"
    return f"""## Scores: {stored["data"]}, {stored["size"]}

{textwrap.fill(" ".join(run.split()), 120, break_on_hyphens=False)}

![{s["score"]} against epsilon](../../../docs/evidence/{name}.svg)

{score_name(stored)}, mean and 95 % interval over seeds:

{harness.markdown_table(header, each(shown, rows))}

{charged_scores(stored, header, epsilons)}Difference to `nu`, paired by seed:

{harness.markdown_table(header, each(paired, [row for row in rows if row != "nu"]))}

{headline_seeds.section(stored)}{other_scores(stored, header, each, rows)}{NOISE}

{harness.markdown_table(header, each(noise, rows))}

**Verdict.**

{verdicts_of_scores(stored)}

{harness.footer(command, cells, True)}
"""


Each = Callable[[Callable[[str, float], str], list[str]], list[tuple[str, ...]]]
"""(what stands in a cell, rows) -> the rows of a table."""


def other_scores(stored: harness.Table, header: tuple[str, ...], each: Each, rows: list[str]) -> str:
    """Of `poems`, the scores that nothing was chosen by; with an empty line at its end."""
    if stored["data"] != "poems":
        return ""
    cells, base = stored["cells"], stored["base"]

    def accuracy(label: str) -> str:
        return harness.show([run["scores"]["accuracy"] for run in cells[label]["runs"]])

    most = max(run["scores"]["accuracy_characters"] for cell in cells.values() for run in cell["runs"])
    text = f"""accuracy of the same runs (higher is better; without privacy {accuracy(NO_PRIVACY)}, the base model
{base["accuracy"]:.4f}; without comma and full stop at most {most:.4f} in any run, and {base["accuracy_characters"]:.4f}
for the base model):"""
    return f"""{textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False)}

{harness.markdown_table(header, each(lambda row, epsilon: accuracy(f"{row}, epsilon {epsilon:g}"), rows))}

"""


def charged_scores(stored: harness.Table, header: tuple[str, ...], epsilons: list[float]) -> str:
    """Of `poems`, the rows that `charged.py` made again; with an empty line at its end."""
    if (stored["data"], stored["size"]) != ("poems", "small"):
        return ""
    again = json.loads((harness.RESULTS.parent / "charged.json").read_text())["poems"]
    cells = again["rows"]

    def told(row: str, epsilon: float) -> str:
        found = cells.get(f"{row}, epsilon {epsilon:g}")
        return ", ".join(f"{each['scores']['nats']:.4f}" for each in found) if found else "not run"

    def most(who: str, epsilon: float) -> float:
        return max(
            (one[who] for at, each in cells.items() if at.endswith(f" {epsilon:g}") for one in each), default=0.0
        )

    paid = "; ".join(
        f"{up(most('epsilon of the share', e)):.4f} and {up(most('epsilon of the others', e)):.4f} at {e:g}"
        for e in epsilons
        if most("epsilon of the share", e)
    )
    before = ", ".join(f"{label} {nats:.4f}" for label, nats in again["made before"].items())
    made = [each for found in cells.values() for each in found]
    clips = [each["clip"] for each in made]
    means = {label: sum(cell["scores"]) / len(cell["scores"]) for label, cell in stored["cells"].items()}
    lags = [each["scores"]["nats"] - means.get(label, math.nan) for label, found in cells.items() for each in found]
    whole = sum(VERIFIED in each for each in made)
    lowest = sum(math.isclose(each["rate"], min(map(float, each["trials"])), rel_tol=1e-3) for each in made)
    text = f"""nats of rows that were made again with every look charged, from a base of
{again["base scores"]["nats"]:.4f}: {len(made)} runs, each in a ledger of its own, {whole} of which were verified (every
charge computed again). A tenth of the poets pays for a median of update norms (epsilon 0.2), of which the clip norm
is a fifth ({min(clips):g} to {max(clips):g}), and for three rates that share one run's epsilon, of which {lowest}
runs took the lowest; the others pay for the model that is kept, with 175 of them a round. Momentum is 0.9 in all rows,
and trials try rates lower by as much as they have more noise. What a poet of the share, and another, pays in all, at
most: {paid}. Base, factor and centre of the rates are those of the uncharged rows, looks at tune poets, who are public.
Rows with sampling cannot be made so: where presence is secret no question may be asked, and a share saves nothing.
Nats above the mean of the cell's uncharged runs: {min(lags):.4f} to {max(lags):.4f}.
Made before as well, while the command was written and users did not train in one pass: {before}.
`python benchmarks/claims/charged.py poems --base {again["base"]} --home DIR`"""
    rows = [row for row in ROWS if any(label.startswith(f"{row}, ") for label in cells)]
    return f"""{textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False, break_long_words=False)}

{harness.markdown_table(header, [(row, *(told(row, epsilon) for epsilon in epsilons)) for row in rows])}

"""


def up(epsilon: float) -> float:
    """The epsilon in four decimals, never less than it is."""
    return math.ceil(1e4 * (epsilon - 1e-9)) / 1e4


def base_text(stored: harness.Table) -> str:
    """The score of the model that training starts from; with a blank at its end."""
    if "base" not in stored:
        return ""
    return f"The base model, before any training: {stored['base'][stored['setting']['score']]:.4f}. "


def score_crossing(stored: harness.Table) -> tuple[float | None, list[float | None]]:
    """(epsilon at which mean scores of `nu` and amplified DP-SGD cross, the same of each seed)."""
    epsilons, ahead = epsilons_of(stored), aheads(stored, "nu", POISSON)
    return cross(ahead.mean(1), epsilons), [cross(column, epsilons) for column in ahead.T]


def verdicts_of_scores(stored: harness.Table) -> str:
    cells, epsilons, higher = stored["cells"], epsilons_of(stored), stored["setting"]["higher"]

    def of(row: str, epsilon: float) -> list[float] | None:
        cell = cells.get(f"{row}, epsilon {epsilon:g}")
        return None if cell is None else list(cell["scores"])

    def judged(what: str, better: str, worse: str, least: float = 0.0, below: float = math.inf) -> str:
        found = []
        for epsilon in epsilons:
            one, other = of(better, epsilon), of(worse, epsilon)
            if one and other and least <= epsilon < below:
                found.append(f"epsilon {epsilon:g} **{harness.verdict(one, other, higher)}**")
        return f"- {what}: {', '.join(found)}" if found else ""

    def learns(row: str) -> str:
        found = []
        for epsilon in epsilons:
            if scores := of(row, epsilon):
                ahead = harness.verdict(scores, [stored["base"][stored["setting"]["score"]]] * len(scores), higher)
                found.append(f"epsilon {epsilon:g} **{ahead}**")
        return f"- {row} ahead of the base model: {', '.join(found)}" if found else ""

    lines = [
        judged("`nu` ahead of amplified DP-SGD from epsilon 4 on", "nu", POISSON, least=4.0),
        judged("amplified DP-SGD ahead of `nu` below epsilon 4", POISSON, "nu", below=4.0),
        *(judged(f"`nu` ahead of {row}", "nu", row) for row in ("optimal-cc", "tree, online", "independent")),
        *(judged(f"{row} ahead of `nu`", row, "nu") for row in ("blt", "banded", "dense")),
        *(
            judged(f"{row} ahead of amplified DP-SGD", row, POISSON)
            for row in (CYCLIC, ALLOCATED, NU_BINS, BANDED_BINS)
        ),
        judged(f"{NU_BINS} ahead of `nu`", NU_BINS, "nu"),
        judged(f"{BANDED_BINS} ahead of banded", BANDED_BINS, "banded"),
        *(learns(row) for row in ROWS if "base" in stored),
    ]
    mean, seeds = score_crossing(stored)
    noise = stored["crossing of noise"]
    in_noise = "nowhere between 0.25 and 32" if noise is None else f"at epsilon {noise:.2f}"
    in_score = (
        f"nowhere between epsilon {epsilons[0]:g} and {epsilons[-1]:g}" if mean is None else f"at epsilon {mean:.2f}"
    )
    each = ", ".join("none" if value is None else f"{value:.2f}" for value in seeds)
    lines.append(
        f"- **Crossing** of `nu` and amplified DP-SGD: in score {in_score} (by seed: {each}; interpolated in log "
        f"epsilon), in noise {in_noise}"
    )
    return "\n".join(line for line in lines if line)


def noise_section() -> str:
    """Noise alone, from the stored results."""
    stored = json.loads((harness.RESULTS / "headline-noise.json").read_text())
    parts = []
    for title, setting in stored["settings"].items():
        epsilons = list(next(iter(setting["noise"].values())))
        least = {e: min(row[e] for row in setting["noise"].values()) for e in epsilons}
        rows = [
            (row, *(f"**{v[e]:.2f}**" if v[e] == least[e] else f"{v[e]:.2f}" for e in epsilons))
            for row, v in setting["noise"].items()
        ]
        head = (
            f"### {title}: {setting['rounds']} rounds of {setting['cohort']} of {setting['users']:,} users, at most "
            f"{setting['times']} times each, delta {setting['delta']:g}"
        )
        parts.append(f"{head}\n\n{harness.markdown_table(('row', *(f'epsilon {e}' for e in epsilons)), rows)}\n")
    crossed = [
        (times, "none between 0.25 and 32" if value is None else f"{value:.2f}")
        for times, value in stored["crossings"].items()
    ]
    pictured = stored["settings"]["fashion, reduced"]
    return f"""## Noise alone

**Run here.** No training: the root-mean-square noise of a prefix sum, per coordinate, at clip norm 1 and at the exact
charge of each plan. The least of each column is bold. A row is missing where the rounds do not allow it, and balls in
bins also where no scores were run, because each of its certificates takes minutes.

{chr(10).join(parts)}
### Where the two cross

epsilon from which `nu` has less noise than amplified DP-SGD, at {pictured["rounds"]} rounds of
{pictured["cohort"]} users, when a user takes part this often:

{harness.markdown_table(("participations", "crossing epsilon"), crossed)}

**Verdict.** {verdict_of_noise(stored)}
Scores may cross elsewhere, because momentum and clipping treat white noise and negatively correlated noise differently.

`python benchmarks/claims/headline.py --noise-only`; deterministic, no seeds. Scores of settings that have no section
above have their commands (`--data`, `--size`), need hours to days, and were **not run**.
"""


def verdict_of_noise(stored: harness.Table) -> str:
    lines = []
    for title, setting in stored["settings"].items():
        noise = setting["noise"]
        amplified = noise[POISSON]
        ahead = [e for e in amplified if min(noise["nu"][e], noise["blt"][e]) < amplified[e]]
        lines.append(f"- {title}: " + (f"from epsilon {ahead[0]} on" if ahead else "nowhere up to epsilon 8"))
    return (
        "In noise, nu or blt is ahead of amplified DP-SGD at these of the epsilons above:\n\n" + "\n".join(lines) + "\n"
    )

"""benchmarks/results/claims/lora.md from what `lora.py` stores."""

from __future__ import annotations

import math
import statistics

import harness
from lora_plans import RATES, RATIO, ROWS, WHOLE, Size, clip_of, grid, row_of
from remarks import wrapped

GOAL = """**Goal.** Adapters whose messages are at most 5 % as large keep half of the gain of full fine-tuning without
privacy, at epsilon 4 and 8."""
SOURCE = """**Source.** Hu et al. 2022 (arXiv 2106.09685) for the adapters; the goal is ours."""


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
    found = stored["cells"]
    for label in found:
        larger = label.replace("epsilon 4", "epsilon 8")
        if larger in found and statistics.mean(gains(stored, larger)) < statistics.mean(gains(stored, label)):
            text += (
                f"At epsilon 8 '{row_of(label)}' is behind epsilon 4: one seed chose the rates, perhaps a worse one. "
            )
    lost = math.log((1 - tang) / (1 - song))
    return f"""{text}nats hides a part of every gain: {100 * tang:.1f} % of the symbols of Tang are unknown characters,
and {100 * song:.1f} % of those of the train poets. A model that learns this share gives the known characters less
probability, which costs {lost:.3f} nats. Rows with privacy are compared under
AdamW alone, whose steps noise flattens."""


def section(stored: harness.Table) -> str:
    """What the page says of one size."""
    s, found, base = Size(**stored["size"]), stored["cells"], stored["base"]
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
    times = -(-s.rounds // s.separation)
    run = f"""{s.rounds} rounds of {s.cohort} of {s.users:,} poets of Song, {s.separation} rounds apart and so
{"once" if times == 1 else f"at most {times} times"} each; at most {s.most} windows of a poet. Rows that the command
leaves out were not run."""
    return f"""## {heading(stored)}

{wrapped(run)}

{harness.markdown_table(header, rows)}

**Verdict**, paired by seed:

{verdicts(stored)}

{wrapped(why(stored))}

{harness.footer(stored["command"], found, tuned=True)}
"""


def heading(stored: harness.Table) -> str:
    s = Size(**stored["size"])
    return f"{s.rounds} rounds of {s.cohort}"


def by_size(runs: list[harness.Table]) -> str:
    """The gains of all rows, side by side; empty for one size."""
    if len(runs) < 2:
        return ""
    labels = list(dict.fromkeys(label for one in runs for label in one["cells"]))
    rows = [
        (label, *(harness.show(gains(one, label)) if label in one["cells"] else "—" for one in runs))
        for label in labels
    ]
    return "\nGain in nats, by size:\n\n" + harness.markdown_table(("row", *map(heading, runs)), rows) + "\n"


def page(stored: harness.Table) -> str:
    """benchmarks/results/claims/lora.md from what `main` stores."""
    runs = stored["runs"]
    sizes = runs[0]["sizes"]
    wire = [
        (
            name,
            f"{size:,} ({100 * size / sizes['full']:.1f} %)",
            "{:.1f}, {:.1f}".format(*(each / 1000 for each in runs[0]["bytes"][name])),
            f"{100 * share_of_bytes(runs[0], f'{name}, '):.1f} %",
            f"{clip_of(name):g}",
        )
        for name, size in sizes.items()
    ]
    run = f"""**Run here.** `poems`: a base model of one layer and width {Size(**runs[0]["size"]).width}, trained on
Tang, which is public; delta 1e-5. Adapters stand on all four products of the layer; every such row trains the output
bias too, because the dynasties differ in how frequent characters are. Clip norms are 0.3 times the median norm of a
tune poet's update at the base model, measured for all but ranks 2 and 4, which lie between ranks 1 and 8. For each row
{RATES} server rates are tried, {RATIO} apart, and further ones while the first or last is the best. The server steps
with AdamW, because the gradients of adapters and of the bias of a rare character differ by orders of magnitude; no
other optimizer was tuned. With "per layer" each adapter and the bias are clipped by themselves, to equal shares of the
norm. Other rows' users of a round train in one pass, which gives the sums of the product's nodes to
round-off. Looked at and not charged: these medians, and the scores of all
runs on tune poets. None of it was made again. Charged, a median is a question of epsilon 0.1 a row (`fieldfare ask
--clip-of`, 64 bins), whose rank is off by .07 for 1 000 poets (one standard deviation)."""
    scores = """nats: mean cross-entropy of characters; lower is better. Gain: nats of the base model less those of the
row. accuracy counts comma and full stop, and no unknown character; "characters" leaves them out; to answer by position
alone scores .1420 and .0071. CPU time is that of the rehearsal, where one process trains the whole cohort."""
    messages = """All objects of the messages of one round with a node that trains one poet, as they are sent. The
frozen base model reaches a node once, outside of the messages."""
    return f"""# LoRA under user-level privacy

{wrapped(GOAL)}

{wrapped(SOURCE)}

{wrapped(run)}

{wrapped(scores)}
{by_size(runs)}
{chr(10).join(section(one) for one in runs)}
## Messages

{harness.markdown_table(("row", "numbers trained", "kB down, up", "of full", "clip norm"), wire)}

{wrapped(messages)}
"""

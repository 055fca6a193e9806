"""`ff.compare`: the same budget, several mechanisms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fieldfare.mechanisms import MechanismSpec
from fieldfare.plan import Plan
from fieldfare_server.cli.compare import ERROR, compare_mechanisms
from fieldfare_server.cli.progress import Trace
from fieldfare_server.notebook.runs import make_frame, make_plot, make_table
from fieldfare_server.run.pricing import require_plans

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = ("label", "noise_multiplier", "sensitivity", "epsilon", ERROR, "buffers", "score")


@dataclass(frozen=True, eq=False)
class Comparison:
    """The mechanisms of one comparison: what each costs and, where it was rehearsed, its held-out score."""

    plan: Plan
    rows: tuple[dict[str, object], ...]
    """A mechanism each: the fields of `fieldfare plan --json`, its label, the error of a prefix sum, its score."""
    rehearsals: tuple[Trace, ...]
    """NOT PRIVATE: one a mechanism, and the last without noise; empty unless trained."""

    def frame(self) -> object:
        """Return a pandas DataFrame, a row a mechanism. Raises `ModuleNotFoundError` where there is no pandas."""
        return make_frame(self.rows, list(self.rows[0]))

    def plot(self) -> Figure:
        """Return held-out scores against rounds. Raises `ValueError` unless trained."""
        if not self.rehearsals:
            raise ValueError("nothing was trained: ff.compare(plan, train=True, data_is_public=True)")
        return make_plot(self.rehearsals, f"{self.plan.run.task}: same budget, different noise")

    def __repr__(self) -> str:
        rows = [
            f"  {row['label']}: noise multiplier {row['noise_multiplier']:.4g}, error of a prefix sum {row[ERROR]:.4g}"
            for row in self.rows
        ]
        return "\n".join(["Comparison(", *rows, ")"])

    def _repr_html_(self) -> str:
        return make_table(SHOWN, self.rows)


def compare(
    plan: Plan,
    mechanisms: Sequence[str | Mapping[str, object] | MechanismSpec] = ("nu", "independent"),
    *,
    train: bool = False,
    data_is_public: bool = False,
    nodes: int = 1,
    progress: bool = True,
) -> Comparison:
    """Compare several mechanisms at the same budget, as `fieldfare compare`.

    Example:
        >>> import fieldfare as ff
        >>> plan = ff.Plan(task="digits", epsilon=8, delta=1e-3, rounds=4, cohort=20, mechanism="nu", population="demo")
        >>> ff.compare(plan, mechanisms=("nu", "independent"))
        Comparison(
          nu: ...

    Args:
        plan: all but the mechanism.
        mechanisms: kinds, or tables such as {"kind": "blt", "buffers": 4}.
        train: also train with each, and once without noise; no ledger records these rehearsals: NOT PRIVATE.
        data_is_public: state that, as `train` requires.
        nodes: simulated nodes that the users are spread over.
        progress: show a bar on a terminal, lines elsewhere.

    Raises:
        BadInput: a mechanism cannot meet the plan; `train` without `data_is_public`.
    """
    require_plans("ff.compare", (plan,))
    specs = [_table(spec) for spec in mechanisms]
    rows, traces = compare_mechanisms(plan, specs, train, data_is_public, nodes, quiet=not progress)
    scores = {trace.label: trace.score for trace in traces}
    return Comparison(plan, tuple({**row, "score": scores.get(row["label"])} for row in rows), tuple(traces))


def _table(spec: str | Mapping[str, object] | MechanismSpec) -> dict[str, object]:
    if isinstance(spec, str):
        return {"kind": spec}
    return (
        {"kind": spec.kind, **spec.model_dump(exclude_defaults=True)} if isinstance(spec, MechanismSpec) else {**spec}
    )

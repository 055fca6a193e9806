"""What a plan may say: every key with its meaning, unit, default and range, read off the models that check
it.

One list of sections serves the page of the site, `fieldfare plan --explain`, `--schema` and `--template`.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from fieldfare import clipping, mechanisms
from fieldfare.aggregation import aggregations
from fieldfare.errors import Unknown
from fieldfare.plan import Plan
from fieldfare.refusals import nearest_of, takes
from fieldfare_server import optimizers
from fieldfare_server.optimizers.schedules import Schedule

Spec = type[BaseModel]

# Table -> kind -> the model of such a table.
KINDS: Mapping[str, Mapping[str, Spec]] = {
    "mechanism": {kind: mechanisms.spec(kind) for kind in mechanisms.kinds()},
    "clipping": {kind: clipping.clippings.spec(kind) for kind in clipping.clippings.kinds()},
    "aggregation": {kind: aggregations.spec(kind) for kind in aggregations.kinds()},
    "server_optimizer": {kind: optimizers.spec(kind) for kind in optimizers.kinds()},
    "server_optimizer.schedule": {
        part.model_fields["kind"].default: part for part in get_args(get_args(Schedule)[0]) if part is not None
    },
}

# What the first line of a template tells editors to look for, next to the plan.
SCHEMA_FILE = "plan.schema.json"


@dataclass(frozen=True)
class Key:
    """One key of a plan."""

    path: str  # such as "run.cohort", or "mechanism.bands"
    kind: str  # the kind of the table that has this key; empty where all have it
    meaning: str
    unit: str
    default: str  # as TOML; "required" or "not set" where there is none
    takes: str

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def explain(self) -> str:
        """Return the key in words, over several lines."""
        where = f' (kind = "{self.kind}")' if self.kind else ""
        unit = f"\n  unit:    {self.unit}" if self.unit else ""
        return f"{self.path}{where}: {self.meaning}.{unit}\n  takes:   {self.takes}\n  default: {self.default}"


@dataclass(frozen=True)
class PlanSection:
    """One table of a plan, or one kind of a table."""

    table: str
    kind: str
    about: str  # its first paragraph of documentation
    keys: tuple[Key, ...]

    @property
    def title(self) -> str:
        return f'[{self.table}] kind = "{self.kind}"' if self.kind else f"[{self.table}]"


def sections() -> Iterator[PlanSection]:
    """Yield all tables in the order of a plan; tables with kinds once for each kind."""
    for table, field in Plan.model_fields.items():
        if table == "task":
            about = "Parameters of the task, which it declares and checks: `fieldfare plan --explain task` lists them."
            yield PlanSection(table, "", about, ())
        elif table in KINDS:
            for name in (table, *(other for other in KINDS if other.startswith(f"{table}."))):
                for kind, spec in KINDS[name].items():
                    yield PlanSection(name, kind, _about(spec), tuple(_keys(name, kind, spec)))
        else:
            parts = (part for part in (field.annotation, *get_args(field.annotation)) if isinstance(part, type))
            (spec,) = (part for part in parts if issubclass(part, BaseModel))
            yield PlanSection(table, "", _about(spec), tuple(_keys(table, "", spec)))


def _keys(table: str, kind: str, spec: Spec) -> Iterator[Key]:
    for name, field in spec.model_fields.items():
        if name == "kind":
            continue
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        unit = str(extra.get("unit", ""))
        taken = "a table with a kind" if name in ("base", "schedule") else takes(field)
        yield Key(f"{table}.{name}", kind, field.description or "", unit, _default(field), taken)


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    return "not set" if field.default is None else _toml(field.default)


def _toml(value: object) -> str:
    if isinstance(value, BaseModel):
        return f'{{ kind = "{value.kind}" }}'  # type: ignore[attr-defined]
    return json.dumps(value)


def _about(spec: Spec) -> str:
    """Return the first paragraph of a model's documentation, in one line; its file's where it has none."""
    paragraph = (spec.__doc__ or sys.modules[spec.__module__].__doc__ or "").split("\n\n")[0]
    return " ".join(paragraph.split())


def explain(wanted: str, known: tuple[PlanSection, ...] | None = None) -> str:
    """Return what a key or a table means: "cohort", "run.cohort", "mechanism", "mechanism.bands".

    known: other sections than those of every plan. Raises `BadInput` for an unknown key, naming the nearest.
    """
    known = tuple(sections()) if known is None else known
    tables = [section for section in known if section.table == wanted or section.kind == wanted]
    if tables:
        return "\n\n".join(_explain_section(section, keys=len(tables) == 1) for section in tables)
    keys = [key for section in known for key in section.keys if wanted in (key.path, key.name)]
    if not keys:
        names = {section.table for section in known} | {key.path for section in known for key in section.keys}
        near = nearest_of(wanted, sorted(names | {key.name for section in known for key in section.keys}))
        raise Unknown(f"--explain {wanted}", "a plan has no such key.", near)
    # One key of several kinds is told once where it means the same for all of them.
    merged: dict[Key, list[str]] = {}
    for key in keys:
        merged.setdefault(Key(key.path, "", key.meaning, key.unit, key.default, key.takes), []).append(key.kind)
    texts = []
    for key, kinds in merged.items():
        of = f"\n  kinds:   {', '.join(kinds)}" if any(kinds) else ""
        texts.append(key.explain() + of)
    return "\n\n".join(texts)


def _explain_section(section: PlanSection, *, keys: bool) -> str:
    names = ", ".join(key.name for key in section.keys)
    if keys and section.keys:
        return "\n\n".join([f"{section.title}: {section.about}", *(key.explain() for key in section.keys)])
    return f"{section.title}: {section.about}" + (f"\n  keys: {names}" if names else "")


def json_schema() -> dict[str, object]:
    """Return the JSON Schema of a plan file, with every kind's tables: of types and ranges, not of what must fit."""
    schema = Plan.model_json_schema()
    tables: dict[str, Any] = schema["$defs"]
    choices: dict[str, list[dict[str, str]]] = {}
    for table, kinds in KINDS.items():
        choices[table] = []
        for spec in kinds.values():
            own = spec.model_json_schema()
            tables.update(own.pop("$defs", {}))
            own["required"] = ["kind", *own.get("required", [])]
            tables[spec.__name__] = own
            choices[table].append({"$ref": f"#/$defs/{spec.__name__}"})
    for table in Plan.model_fields:
        if table in KINDS:
            schema["properties"][table] = {"title": table, "oneOf": choices[table]}
    for table, place in (("server_optimizer", "base"), ("server_optimizer.schedule", "schedule")):
        for own in tables.values():
            if place in own.get("properties", {}):
                meaning = own["properties"][place].get("description", "")
                own["properties"][place] = {"description": meaning, "oneOf": choices[table]}
    for parent in ("MechanismSpec", "ClippingSpec", "ServerOptimizerSpec", "ServerOptimizer", "AggregationSpec"):
        tables.pop(parent, None)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema, "title": "A training plan of Fieldfare"}


# What the template sets.
CHOSEN: Mapping[str, object] = {
    "privacy.population": "people",
    "privacy.epsilon": 8.0,
    "privacy.delta": 1e-5,
    "run.task": "digits",
    "run.rounds": 32,
    "run.cohort": 20,
    "participation.scheme": "min-separation",
    "participation.separation": 4,
    "participation.max_participations": 4,
    "mechanism.kind": "blt",
    "clipping.kind": "flat",
    "clipping.norm": 1.0,
    "aggregation.kind": "plain",
    "server_optimizer.kind": "sgd",
    "server_optimizer.learning_rate": 1.0,
    "server_optimizer.momentum": 0.9,
    "client.epochs": 1,
    "client.batch_size": 8,
    "client.learning_rate": 0.3,
}


def template(chosen: Mapping[str, object] | None = None, task: tuple[Key, ...] = ()) -> str:
    """Return a plan with every key: those of `chosen` are set, all others are comments with their defaults.

    chosen: values by path, which replace or add to `CHOSEN`; None: not set. task: keys of the `[task]` table.
    """
    values = {path: value for path, value in {**CHOSEN, **(chosen or {})}.items() if value is not None}
    lines = [
        f"#:schema {SCHEMA_FILE}",
        "# A training plan. A key in a comment has its default, or is not set. More: `fieldfare plan --explain KEY`.",
        "# For the editor's help in the line above: fieldfare plan --schema > " + SCHEMA_FILE,
    ]
    done: set[str] = set()
    for section in sections():
        table = section.table
        kind = values.get(f"{table}.kind")
        if table in done or (section.kind and section.kind != kind and table in CHOSEN_TABLES):
            continue
        if table not in CHOSEN_TABLES and table in KINDS:
            continue
        done.add(table)
        keys = task if table == "task" else section.keys
        unused = not any(path.startswith(f"{table}.") for path in values)
        lines += ["", f"# {section.about}" if len(section.about) < 117 else _wrapped(section.about)]
        lines.append(f"# [{table}]" if unused else f"[{table}]")
        if section.kind:
            others = ", ".join(other for other in KINDS[table] if other != section.kind)
            lines += [_wrapped(f"which kind; others: {others}"), f'kind = "{section.kind}"']
        for key in keys:
            unit = f" [{key.unit}]" if key.unit else ""
            lines += [_wrapped(f"{key.meaning}{unit}; takes {key.takes}"), _setting(key, values)]
    return "\n".join(lines) + "\n"


CHOSEN_TABLES = tuple(path.rpartition(".")[0] for path in CHOSEN if path.endswith(".kind"))


def _wrapped(text: str) -> str:
    return textwrap.fill(
        text, 119, initial_indent="# ", subsequent_indent="# ", break_long_words=False, break_on_hyphens=False
    )


def _setting(key: Key, values: Mapping[str, object]) -> str:
    if key.path in values:
        return f"{key.name} = {_toml(values[key.path])}"
    return f"# {key.name} = " + ("(not set)" if key.default == "not set" else key.default)


def section_of_task(spec: Spec) -> PlanSection:
    """Return the `[task]` table of a task whose parameters are `spec`."""
    return PlanSection("task", "", _about(spec), tuple(_keys("task", "", spec)))

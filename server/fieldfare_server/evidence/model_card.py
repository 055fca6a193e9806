"""Write a released model as a directory for a model hub: weights, a card, and the evidence for its privacy.

| file | what |
|---|---|
| `README.md` | the card: YAML front matter, the guarantee in words, data, scores, how to load |
| `model.safetensors` | the full state dict |
| `config.json` | of a model of transformers, which loads the directory with `from_pretrained` |
| `plan.toml` | the plan of the run |
| `statement.md`, `statement.json` | the privacy statement |
| `certificate.json` | what docs/check_certificate.py checks; left out where a run has none, and the card says why |
"""

from __future__ import annotations

import ast
import json
import tempfile
from pathlib import Path
from typing import Any

from torch import nn

from fieldfare.errors import NotAllowed, Refused
from fieldfare.names import task_words
from fieldfare.plan import Plan
from fieldfare.task import load_task
from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.plan_file import plan_text
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.run.export_model import ReleasedModel, require_new, write_safetensors


def write_card(ledger: Reader, home: StateDirectory, model: ReleasedModel, to: Path) -> None:
    """Write the directory `to`, all of it or nothing. Everything in it is released and charged.

    Raises:
        BadInput: there is something of that name, or the run is not private.
    """
    run = model.run
    statement = privacy_statement(ledger, run.id, home.root)
    if not statement.private:
        raise NotAllowed("--format hub", f"run {run.id} is not private: its noise has a fixed seed.", "safetensors")
    require_new(to)
    plan = Plan.stored(run.plan)
    module, held_out = _module(plan)
    files = {
        "plan.toml": plan_text(plan),
        "statement.md": statement.to_markdown(),
        "statement.json": json.dumps(statement.to_json(), indent=1) + "\n",
    }
    try:
        files["certificate.json"] = certificate(ledger, run.id, home).decode() + "\n"
        proof = "`check_certificate.py` of Fieldfare's documentation checks `certificate.json` without this software."
    except Refused as refused:
        proof = f"There is no certificate: {refused.why}"
    if (config := getattr(module, "config", None)) is not None and hasattr(module, "save_pretrained"):
        files["config.json"] = (
            json.dumps(config.to_dict() | {"architectures": [type(module).__name__]}, indent=1) + "\n"
        )
    series = ledger.round_series(run.id, points=2)
    score = series[-1].statistics if series and model.rounds == run.next_round else {}
    scored = "None of this model."
    if score.get("score") is not None:
        what = f"{score['score_name']}: {score['score']:.4f}"
        scored = f"Held-out {what}, without noise on data that was not trained on."
    front = _front(run.id, plan, score, "config.json" in files)
    called = " ".join((plan.run.name or plan.run.task or "A Flower app").split())  # in one line, whatever it is
    files["README.md"] = "\n".join(
        [
            "---",
            *(f"{key}: {json.dumps(value)}" for key, value in front.items()),
            "---",
            f"# {called}: a private model",
            "",
            statement.summary,
            "",
            f"After {model.rounds} of {run.rounds} rounds of run `{run.id}`, plan `{run.plan_digest}`. "
            f"`statement.md` has the whole statement. {proof}",
            "",
            "## Data",
            "",
            f"Task: {task_words(run.plan)}. Unit of privacy: {ledger.population(run.population).unit}, of population "
            f"`{run.population}`. {held_out}",
            "",
            "## Scores",
            "",
            scored,
            "",
            "## Not covered",
            "",
            *(f"- {line}" for line in statement.sections[-1].lines),
            "",
            "## Load it",
            "",
            *_loading(module),
            "",
        ]
    )
    with tempfile.TemporaryDirectory(dir=to.absolute().parent, prefix=".card-") as made:
        whole = Path(made) / "card"
        whole.mkdir()
        for name, text in files.items():
            (whole / name).write_text(text, encoding="utf-8")
        write_safetensors(model, whole / "model.safetensors")
        whole.rename(to)


def _module(plan: Plan) -> tuple[nn.Module | None, str]:
    """Return the task's model, and on whose data it is scored; None where the task is not here."""
    try:
        task = load_task(plan.task_reference)
        return task.build_model(), f"Scored on: {task.held_out}"
    except Exception:  # whatever the task's code raises
        return None, "The task is not where this card was written."


def _front(run: str, plan: Plan, score: Any, transformers: bool) -> dict[str, object]:
    """Return the front matter, without what nobody said, such as a licence."""
    front: dict[str, object] = {
        "library_name": "transformers" if transformers else "pytorch",
        "tags": ["differential-privacy", "federated-learning", "fieldfare"],
    }
    if score.get("score") is not None:
        name = score["score_name"]
        data = {"name": "held-out data", "type": plan.run.task or "flower-app"}
        metric = {"type": name, "name": name, "value": score["score"]}
        result = {"task": {"type": "other"}, "dataset": data, "metrics": [metric]}
        front["model-index"] = [{"name": plan.run.name or run, "results": [result]}]
    return front


def _loading(module: nn.Module | None) -> list[str]:
    """Return Python that loads the weights; with the model where that can be written in PyTorch's own words."""
    built = None if module is None else _in_torch(module)
    lines = ["```python", "from safetensors.torch import load_file", ""]
    if module is not None and hasattr(module, "save_pretrained"):
        lines = ["```python", f"from transformers import {type(module).__name__}", ""]
        return [*lines, f'model = {type(module).__name__}.from_pretrained(".")', "```"]
    if built is not None:
        lines[1:2] = ["from safetensors.torch import load_file", "from torch import nn"]
        return [*lines, f"model = {built}", 'model.load_state_dict(load_file("model.safetensors"))', "```"]
    shape = [] if module is None else ["The model is built by code of the task:", "", "```text", str(module), "```", ""]
    return [*shape, *lines, 'state = load_file("model.safetensors")  # for load_state_dict', "```"]


def _in_torch(module: nn.Module) -> str | None:
    """Return how to build `module`, where it is PyTorch's own layers one after another; None for others."""
    if type(module) is nn.Sequential:
        children = [_in_torch(child) for child in module]
        own = [name for name, _ in module.named_children()] == [str(i) for i in range(len(module))]
        plain = own and not any(True for _ in (*module.buffers(recurse=False), *module.parameters(recurse=False)))
        return f"nn.Sequential({', '.join(filter(None, children))})" if plain and all(children) else None
    if not type(module).__module__.startswith("torch.nn.modules.") or any(True for _ in module.children()):
        return None
    text = f"nn.{module!r}"
    names = {each.id for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Name)}  # not `padding=same`
    return text if names == {"nn"} else None

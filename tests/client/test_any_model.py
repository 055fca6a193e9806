"""Models and losses as people write them: together, isolated or on recorded operations, users train as in the loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from fieldfare.errors import BadInput
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema
from fieldfare.task import Task, seeded
from fieldfare_client.training.choice import KNOWN
from fieldfare_client.training.local_model import make_ready, why_alone
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable
from support.refusals import coded

SIZES = [20, 7, 1, 13, 20, 0, 33, 2]
Change = Callable[[nn.Module], object]


class By(nn.Module):
    """`function` of the module itself and eight numbers a row."""

    def __init__(self, function: Callable[[Any, torch.Tensor], torch.Tensor], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.function(self, values)


class Doubled(nn.Linear):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(values)


class Shifted(nn.Sequential):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = super().forward(values)
        return outputs * 2 + 1


def stack(*changes: Change, first: nn.Module | None = None, between: nn.Module | None = None) -> nn.Module:
    made = nn.Sequential(first or nn.Linear(8, 6), between or nn.Tanh(), nn.Linear(6, 3))
    for change in changes:
        change(made)
    return made


def twice() -> nn.Module:
    layer = nn.Linear(8, 8)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), nn.Linear(8, 3))


def patched(made: Any) -> None:
    forward = made[0].forward
    made[0].forward = lambda values: 2 * forward(values)


def sequences(part: nn.Module, width: int, **also: nn.Module) -> nn.Module:
    """Two steps of four numbers each, through `part`."""

    def outputs(made: Any, values: torch.Tensor) -> torch.Tensor:
        found = made.part(values.view(-1, 2, 4))
        return made.head((found[0] if isinstance(found, tuple) else found).flatten(1))  # type: ignore[no-any-return]

    return By(outputs, part=part, head=nn.Linear(width, 3), **also)


def attention(made: Any, values: torch.Tensor) -> torch.Tensor:
    steps = values.view(-1, 2, 4)
    return made.head(made.part(steps, steps, steps)[0].flatten(1))  # type: ignore[no-any-return]


def words(kind: Any, **settings: Any) -> nn.Module:
    def outputs(made: Any, values: torch.Tensor) -> torch.Tensor:
        found = made.words((values > 0).long())
        return made.head(found.mean(1) if found.ndim == 3 else found)  # type: ignore[no-any-return]

    return By(outputs, words=kind(2, 5, **settings), head=nn.Linear(5, 3))


def counting() -> nn.Module:
    made = By(lambda made, values: made.head(values) * made.count.add_(1), head=nn.Linear(8, 3))
    made.register_buffer("count", torch.zeros(()))
    return made


def aliased() -> nn.Module:
    layer = nn.Linear(8, 3)
    made = By(lambda made, values: F.linear(values, made.kept[0]) + layer(values), part=layer)
    made.kept = [layer.weight]  # type: ignore[assignment]
    return made


def norm_of(made: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(made)


parametrized = nn.utils.parametrizations
MODELS: dict[str, Callable[[], nn.Module]] = {
    "sparse embedding": lambda: words(nn.Embedding, sparse=True),
    "padded embedding": lambda: words(nn.Embedding, padding_idx=0),
    "bag of embeddings": lambda: words(nn.EmbeddingBag),
    "weight norm, older": lambda: stack(first=norm_of(nn.Linear(8, 6))),
    "weight norm": lambda: stack(first=parametrized.weight_norm(nn.Linear(8, 6))),
    "spectral norm": lambda: stack(first=parametrized.spectral_norm(nn.Linear(8, 6))),
    "orthogonal": lambda: nn.Sequential(parametrized.orthogonal(nn.Linear(8, 8)), nn.Linear(8, 3)),
    "a Sequential of its own": lambda: Shifted(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)),
    "a Linear of its own": lambda: stack(first=Doubled(8, 6)),
    "a layer twice": twice,
    "a hook": lambda: stack(lambda made: made[0].register_forward_hook(lambda *seen: 2 * seen[2])),  # type: ignore
    "a hook before": lambda: stack(lambda made: made.register_forward_pre_hook(lambda _, seen: (2 * seen[0],))),
    "a hook behind": lambda: stack(lambda made: made[2].register_full_backward_hook(lambda _, g, __: (g[0] / 2,))),  # type: ignore
    "a parameter's hook": lambda: stack(lambda made: made[0].weight.register_hook(lambda found: found / 10)),  # type: ignore
    "a patched layer": lambda: stack(patched),
    "a frozen layer": lambda: stack(lambda made: made[0].requires_grad_(False)),  # type: ignore[index,operator]
    "in place": lambda: stack(between=nn.ReLU(inplace=True)),
    "leaky, in place": lambda: stack(between=nn.LeakyReLU(0.2, inplace=True)),
    "float64": lambda: stack().double(),
    "bfloat16": lambda: stack().bfloat16(),
    "two dtypes": lambda: By(
        lambda made, values: made.b(torch.tanh(made.a(values.double())).float()),
        a=nn.Linear(8, 6).double(),
        b=nn.Linear(6, 3),
    ),
    "eval mode": lambda: stack(between=nn.Dropout(0.5)).eval(),
    "dropout": lambda: stack(between=nn.Dropout(0.5)),
    "a function's dropout": lambda: By(
        lambda made, values: made.b(F.dropout(torch.tanh(made.a(values)), 0.5, made.training)),
        a=nn.Linear(8, 6),
        b=nn.Linear(6, 3),
    ),
    "BatchNorm that stands still": lambda: stack(between=nn.BatchNorm1d(6).eval()),
    "InstanceNorm": lambda: nn.Sequential(
        *(nn.Unflatten(1, (2, 4)), nn.InstanceNorm1d(2, affine=True, track_running_stats=True)),
        *(nn.Flatten(), nn.Linear(8, 3)),
    ),
    "LayerNorm": lambda: stack(between=nn.Sequential(nn.GELU(), nn.LayerNorm(6))),
    "PReLU": lambda: stack(between=nn.PReLU()),
    "input in place": lambda: By(lambda made, values: made.head(values.mul_(2)), head=nn.Linear(8, 3)),
    "TorchScript": lambda: torch.jit.script(stack()),  # type: ignore[no-any-return,no-untyped-call]
    "attention": lambda: By(attention, part=nn.MultiheadAttention(4, 2, batch_first=True), head=nn.Linear(8, 3)),
    "transformer": lambda: sequences(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True), 8),
    "LSTM both ways": lambda: sequences(nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True), 12),
    "LSTM with dropout": lambda: sequences(nn.LSTM(4, 3, num_layers=2, dropout=0.3, batch_first=True), 6),
    "checkpointed": lambda: By(
        lambda made, values: made.b(checkpoint(made.a, values, use_reentrant=False)),
        a=nn.Sequential(nn.Linear(8, 6), nn.Tanh()),
        b=nn.Linear(6, 3),
    ),
    "grouped convolution": lambda: nn.Sequential(
        *(nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 4, 2, groups=2, padding=1), nn.ReLU(), nn.Flatten()),
        nn.Linear(36, 3),
    ),
    "list of parameters": lambda: By(
        lambda made, values: values @ made.own[0] @ made.own[1],
        own=nn.ParameterList([torch.randn(8, 6) / 10, torch.randn(6, 3) / 10]),
    ),
    "an alias in a list": aliased,
    "a part without gradient": lambda: By(
        lambda made, values: made.b(torch.tanh(made.a(values)).detach()), a=nn.Linear(8, 6), b=nn.Linear(6, 3)
    ),
    "a buffer that counts": counting,
    "bilinear": lambda: By(lambda made, values: made.part(values, values), part=nn.Bilinear(8, 8, 3)),
    "a number": lambda: By(
        lambda made, values: made.head(values) * made.scale, head=nn.Linear(8, 3), scale=nn.Parameter(torch.tensor(1.5))
    ),
    "a parameter of nothing": lambda: By(
        lambda made, values: made.head(values), head=nn.Linear(8, 3), none=nn.Parameter(torch.zeros(0, 4))
    ),
    "not contiguous": lambda: By(
        lambda made, values: values @ made.own, own=nn.Parameter((torch.randn(3, 8) / 10).t())
    ),
}
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
entropy = F.cross_entropy
LOSSES: dict[str, Loss] = {
    "mean": entropy,
    "sum": lambda outputs, targets: entropy(outputs, targets, reduction="sum"),
    "a number a class": lambda outputs, targets: (outputs - F.one_hot(targets, 3)).square(),
    "weighted mean": lambda outputs, targets: entropy(outputs, targets, weight=torch.tensor([1.0, 2.0, 3.0])),
    "some rows": lambda outputs, targets: entropy(outputs, targets, reduction="none")[targets > 0],
    "the worst row": lambda outputs, targets: entropy(outputs, targets, reduction="none").topk(1).values,
    "rows against each other": lambda outputs, _: (outputs - outputs.mean(0)).square().mean(1) - outputs[:, 0],
    "margins": lambda outputs, targets: F.multi_margin_loss(outputs, targets, reduction="none"),
    "outputs in place": lambda outputs, targets: entropy(outputs.mul_(2), targets, reduction="none"),
    "draws": lambda outputs, targets: entropy(outputs + torch.randn_like(outputs), targets, reduction="none"),
    "numpy's draws": lambda outputs, targets: entropy(outputs, targets) * float(np.random.rand()),
    "numpy's mean": lambda outputs, targets: entropy(outputs, targets) * float(np.mean(targets.numpy()) + 1),
    "a number read": lambda outputs, targets: entropy(outputs, targets) * (targets.sum().item() + 1),
}


class Theirs(Task):
    name, score_name, held_out = "theirs", "loss", "Nothing is evaluated."

    def __init__(self, model: Callable[[], nn.Module], loss: Loss | None = None) -> None:
        self.model, self._loss = model, loss

    def build_model(self) -> nn.Module:
        with seeded(0):
            return self.model()

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self._loss is not None:
            return self._loss(outputs, targets)
        return entropy(outputs.float(), targets, reduction="none")

    def users(self) -> UserTable:
        chance, rows = np.random.default_rng(0), sum(SIZES)
        columns = {"x": chance.standard_normal((rows, 8)).astype(np.float32), "y": chance.integers(0, 3, rows)}
        return UserTable([f"u{place}" for place in range(len(SIZES))], np.cumsum([0, *SIZES]), columns)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": 0.0}


def trained(task: Task, engine: str = "auto", **how: bool) -> torch.Tensor:
    """The sum of all users' updates, of the second call: what the first leaves behind would show."""
    KNOWN.clear()
    client = ClientSpec(epochs=2, batch_size=5, learning_rate=0.1, engine=engine)
    trainer = Trainer(task, client, lambda updates: None, seed=1, **how)
    start = Schema.of(model := task.build_model()).flatten(dict(model.named_parameters()))
    for _ in range(2):
        found = trainer.train([start], [1.0], task.users(), np.arange(len(SIZES)), at_round=1)  # type: ignore[arg-type]
        assert not found.failures
    return found.update


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*scripted:UserWarning")
@pytest.mark.parametrize("how", ["together", "isolated", "apart"])
@pytest.mark.parametrize(
    "task",
    [
        *(pytest.param(Theirs(model), id=name) for name, model in MODELS.items()),
        *(pytest.param(Theirs(stack, loss), id=f"loss: {name}") for name, loss in LOSSES.items()),
        *(pytest.param(Theirs(MODELS["weight norm"], loss), id=f"mapped: {name}") for name, loss in LOSSES.items()),
    ],
)
def test_users_train_as_the_loop_trains_them(task: Task, how: str) -> None:
    expected = trained(task, "loop")
    assert bool(expected.any())
    engine = "batched" if how == "together" and not why_alone(make_ready(task.build_model())) else "auto"
    found = trained(task, engine, isolated=how != "together", apart=how == "apart")
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


@pytest.mark.parametrize("limit", [None, 0.1])
@pytest.mark.parametrize("model", ["a number", "a parameter of nothing", "a layer twice", "list of parameters"])
def test_users_of_such_models_train_at_once(model: str, limit: float | None) -> None:
    task, client = Theirs(MODELS[model]), ClientSpec(batch_size=5, engine="batched", gradient_clip=limit)
    trainer = Trainer(task, client, lambda updates: None)
    start = Schema.of(made := task.build_model()).flatten(dict(made.named_parameters()))
    trainer.train([start], [1.0], task.users(), np.arange(len(SIZES)), at_round=1)
    assert "users at once" in trainer.explain()[0]


class Flags(Theirs):
    """Labels that are True or False, which torch's loss takes mapped over users, and not of one user."""

    def users(self) -> UserTable:
        chance, rows = np.random.default_rng(0), sum(SIZES)
        columns = {"x": chance.standard_normal((rows, 8)).astype(np.float32), "y": chance.random(rows) < 0.5}
        return UserTable([f"u{place}" for place in range(len(SIZES))], np.cumsum([0, *SIZES]), columns)


@pytest.mark.parametrize("isolated", [False, True])
def test_labels_that_the_loop_refuses_fail_everybody_and_not_the_round(isolated: bool) -> None:
    task = Flags(stack)
    trainer = Trainer(task, ClientSpec(batch_size=5), lambda updates: None, isolated=isolated)
    start = Schema.of(model := task.build_model()).flatten(dict(model.named_parameters()))
    found = trainer.train([start], [1.0], task.users(), np.arange(len(SIZES)), at_round=1)
    assert found.failures.total() == sum(size > 0 for size in SIZES)
    assert not found.update.any()


def test_a_lazy_layer_is_refused_in_words() -> None:
    with pytest.raises(BadInput, check=coded("wrong-form", "'0.weight'")):
        trained(Theirs(lambda: nn.Sequential(nn.LazyLinear(3))))

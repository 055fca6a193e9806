"""A released model as a file: complete, loaded with strict=True, and nothing in it but what is released or public."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from fieldfare.errors import BadInput
from fieldfare.schema import Schema
from fieldfare.task import complete_state, seeded
from support.refusals import Coded, coded


class Tied(nn.Module):
    """Tied, frozen, half-precision parameters and buffers of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.norm = nn.BatchNorm1d(3)
        self.half = nn.Linear(3, 2).half()
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("positions", torch.arange(4)[None])
        self.register_buffer("scratch", torch.ones(2), persistent=False)


def test_a_released_model_is_a_whole_state_dict() -> None:
    with seeded(3):
        model = Tied()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    schema = Schema.of(model)
    assert "head.weight" not in schema.names
    assert not any(name.startswith("frozen") for name in schema.names)
    released = {name: torch.randn(shape) for name, shape in zip(schema.names, schema.shapes, strict=True)}
    complete = complete_state(model, released)
    assert list(complete) == list(before)
    for name, value in complete.items():
        assert (value.dtype, value.shape) == (before[name].dtype, before[name].shape)
        source = released.get("embedding.weight" if name == "head.weight" else name, before[name])
        assert torch.equal(value, source.to(value.dtype)), name
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    # Tied names are written twice: a file holds no shared memory, and loading it ties them again.
    other = Tied()
    other.load_state_dict(load(save(complete)), strict=True)
    assert torch.equal(other.head.weight, released["embedding.weight"])
    assert other.head.weight is other.embedding.weight


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r.pop("norm.weight"), coded("parameters-missing", "released parameters", "'norm.weight'")),
        (
            lambda r: r.update(norm_weight=torch.zeros(3)),
            coded("parameter-unknown", "released parameter 'norm_weight'", "norm.weight"),
        ),
        (
            lambda r: r.update({"norm.weight": torch.zeros(3, 1)}),
            coded("parameter-shape", "released parameter 'norm.weight'"),
        ),
    ],
)
def test_parameters_of_another_model_are_refused(change: object, says: Coded) -> None:
    model = Tied()
    released = {name: value for name, value in model.named_parameters() if value.requires_grad}
    change(released)  # type: ignore[operator]
    with pytest.raises(BadInput, check=says):
        complete_state(model, released)

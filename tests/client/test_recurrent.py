"""An LSTM that is mapped over users gives each user what PyTorch's own LSTM gives that user alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from fieldfare_client.training import recurrent
from fieldfare_client.training.recurrent import mapped_recurrence

USERS, ROWS, STEPS = 3, 4, 5


class Model(nn.Module):
    """Its loss uses all that an LSTM returns. `given`: from a state that is not zero."""

    def __init__(self, given: bool = False, **settings: Any) -> None:
        super().__init__()
        self.embedding, self.cell, self.given = nn.Embedding(7, 2), nn.LSTM(2, 3, **settings), given

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values = self.embedding(tokens)
        ways = 2 if self.cell.bidirectional else 1
        rows = values.shape[0 if self.cell.batch_first else 1]
        state = torch.full((self.cell.num_layers * ways, rows, 3), 0.3)
        outputs, (hidden, cell) = self.cell(values, (state, state)) if self.given else self.cell(values)
        return outputs.square().sum() + (hidden * 1.5).sin().sum() + (cell * 0.7).cos().sum()


def gradients(model: Model, weights: dict[str, torch.Tensor], tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of every user, mapped as the engine maps them."""
    with mapped_recurrence(model):
        return vmap(grad(lambda own, rows: functional_call(model, own, (rows,))))(weights, tokens)


def made(model: Model) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Weights of each user's own, and tokens."""
    draw = torch.Generator().manual_seed(1)
    weights = {n: torch.randn(USERS, *p.shape, generator=draw) * 0.6 for n, p in model.named_parameters()}
    return weights, torch.randint(7, (USERS, ROWS, STEPS), generator=draw)


def expect(model: Model, weights: dict[str, torch.Tensor], tokens: torch.Tensor, user: int) -> dict[str, torch.Tensor]:
    """The user's gradients by autograd through PyTorch's own LSTM."""
    own = {name: value[user].clone().requires_grad_() for name, value in weights.items()}
    return dict(
        zip(own, torch.autograd.grad(functional_call(model, own, (tokens[user],)), [*own.values()]), strict=True)
    )


@pytest.mark.parametrize(("batch_first", "layers", "bias"), list(product([True, False], [1, 2], [True, False])))
def test_every_user_has_the_gradients_of_pytorchs_lstm(
    batch_first: bool, layers: int, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, whole = [], recurrent._forward
    monkeypatch.setattr(recurrent, "_forward", lambda *tensors: runs.append(tensors) or whole(*tensors))
    model = Model(batch_first=batch_first, num_layers=layers, bias=bias)
    weights, tokens = made(model)
    found = gradients(model, weights, tokens)
    assert len(runs) == layers, "once a layer, for all users"
    for user in range(USERS):
        for name, value in expect(model, weights, tokens, user).items():
            torch.testing.assert_close(found[name][user], value, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, of kinds that it does not map
@pytest.mark.parametrize("settings", [{"bidirectional": True}, {"proj_size": 2}, {"given": True}], ids=str)
def test_other_lstms_are_left_to_pytorch(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(recurrent, "_forward")
    if "proj_size" in settings:
        monkeypatch.setattr(Model, "forward", lambda self, tokens: self.cell(self.embedding(tokens))[0].square().sum())
    model = Model(batch_first=True, **settings)
    weights, tokens = made(model)
    found = gradients(model, weights, tokens)
    for name, value in expect(model, weights, tokens, 1).items():
        torch.testing.assert_close(found[name][1], value, rtol=1e-4, atol=1e-5)


def test_one_users_data_move_no_bit_of_anothers_gradients() -> None:
    model = Model(batch_first=True)
    weights, tokens = made(model)
    before = gradients(model, weights, tokens)
    tokens[1] = (tokens[1] + 1) % 7
    weights["cell.weight_hh_l0"][1] = torch.nan
    after = gradients(model, weights, tokens)
    for name in before:
        assert torch.equal(before[name][[0, 2]], after[name][[0, 2]])
    assert not after["cell.weight_hh_l0"][1].isfinite().any()


def test_layers_whose_input_is_the_same_for_all_and_layers_that_nothing_maps() -> None:
    model = Model(batch_first=True)
    weights, tokens = made(model)

    def loss(cell: dict[str, torch.Tensor]) -> torch.Tensor:
        public = {"embedding.weight": weights["embedding.weight"][0]}
        return functional_call(model, {**cell, **public}, (tokens[0],))

    mapped = {name: value for name, value in weights.items() if name.startswith("cell")}
    with mapped_recurrence(model):
        found = vmap(grad(loss))(mapped)
        alone = grad(loss)({name: value[0] for name, value in mapped.items()})
    expected = expect(model, weights, tokens[:1], 0)
    for name, value in alone.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found[name][0], expected[name], rtol=1e-4, atol=1e-5)


def test_the_model_is_its_own_again_whatever_happens() -> None:
    model = Model()
    with pytest.raises(TypeError), mapped_recurrence(model):
        model(None)
    assert "forward" not in vars(model.cell)

"""The operations of a loss are repeated with the same bits, and only for a loss that they are the gradient of."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fieldfare_client.training.loss_gradient import MOST, OFTEN, Loss, LossGradient, SealedLoss, _Recorder, _turn

WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 0.25])


def entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def weighted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, targets, WEIGHTS, reduction="none", label_smoothing=0.1)


def mixing(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss may mix the examples of a batch."""
    centred = (outputs - outputs.mean(0)) / (outputs.std(0) + 1e-3)
    return functional.cross_entropy(centred, targets, reduction="none") * outputs.norm()


def joining(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return entropy(torch.cat([outputs, -outputs], dim=1), targets)


def splitting(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    first, second = outputs.split(2, dim=1)
    return entropy(first * second, targets % 2)


def overwriting(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss that overwrites a tensor which nothing else refers to."""
    return entropy((2.0 * outputs).mul_(1.5) + torch.zeros(4).add_(1.0), targets)


def renaming(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    flat = (2.0 * outputs).mul_(1.5)
    flat.view(-1).mul_(0.5)
    return entropy(flat, targets)


def logistic(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(outputs[:, 0], (targets > 1).float(), reduction="none")


def batch(seed: int, users: int = 6, rows: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 4, (users, rows), generator=generator)
    return torch.randn(users, rows, 4, generator=generator), targets


def expected(loss: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Every user by itself."""
    outputs = outputs.clone().requires_grad_()
    sum(loss(o, t).mean() for o, t in zip(outputs, targets, strict=True)).backward()  # type: ignore[union-attr]
    assert outputs.grad is not None
    return outputs.grad


class Calls:
    """A loss that counts its calls."""

    def __init__(self, loss: Loss) -> None:
        self.loss, self.count, self.factor = loss, 0, 1.0

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.loss(outputs, targets) * self.factor


@pytest.mark.parametrize("loss", [entropy, weighted, mixing, overwriting, renaming, logistic])
def test_what_is_repeated_has_the_same_bits(loss: Loss) -> None:
    calls = Calls(loss)
    repeating, mapping = LossGradient(calls), LossGradient(loss)
    for seed in range(OFTEN + 20):
        if seed % 5 == 0:
            repeating.begin()
        mapping._constant = False  # nothing is repeated
        gradient = repeating(*batch(seed))
        assert torch.equal(gradient, mapping(*batch(seed)))
        torch.testing.assert_close(gradient, expected(loss, *batch(seed)))
    assert calls.count <= OFTEN + 7 + 20 // 5


@pytest.mark.parametrize("loss", [entropy, weighted, mixing, overwriting, renaming, logistic])
def test_a_sealed_loss_serves_any_number_of_users_and_is_not_called_for_them(loss: Loss) -> None:
    calls = Calls(loss)
    sealed, mapping = SealedLoss(calls, 3), LossGradient(loss)
    sealed.seal(torch.zeros(1, 1, 4), torch.ones(1, 1, dtype=torch.int64))
    mapping._constant, calls.count = False, 0
    for users, rows in ((1, 3), (2, 3), (7, 2), (52, 3), (300, 2)):
        assert torch.equal(sealed(*batch(users, users, rows)), mapping(*batch(users, users, rows)))
    assert calls.count == 0


@pytest.mark.parametrize("loss", [joining, splitting])
def test_a_loss_with_other_operations_is_mapped_every_time(loss: Loss) -> None:
    calls = Calls(loss)
    gradients = LossGradient(calls)
    for seed in range(OFTEN + 5):
        torch.testing.assert_close(gradients(*batch(seed)), expected(loss, *batch(seed)))
    assert calls.count == OFTEN + 5 + 2, "two of them to record it"


def test_a_loss_that_changes_is_found_at_the_next_chunk_and_never_repeated_again() -> None:
    calls = Calls(entropy)
    gradients = LossGradient(calls)
    for seed in range(OFTEN + 10):
        gradients(*batch(seed))
    assert calls.count < OFTEN + 10
    calls.factor, calls.count = 3.0, 0
    gradients.begin()
    for seed in range(5):
        torch.testing.assert_close(gradients(*batch(seed)), 3.0 * expected(entropy, *batch(seed)))
    assert calls.count == 1 + 5, "one user's batch told"


def test_a_loss_that_changes_with_every_call_is_never_repeated() -> None:
    calls = Calls(entropy)

    def growing(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        calls.factor += 1.0
        return calls(outputs, targets)

    gradients = LossGradient(growing)
    for seed in range(OFTEN + 10):
        found = gradients(*batch(seed))
        torch.testing.assert_close(found, calls.factor * expected(entropy, *batch(seed)))
    assert calls.count == OFTEN + 10 + 3, "two of them to record it, and one that differed"


def test_a_loss_that_changes_once_it_is_recorded_is_repeated_no_more() -> None:
    """What was recorded is held against the loss itself before it is trusted."""
    calls = Calls(entropy)
    gradients = LossGradient(calls)
    for seed in range(OFTEN):
        gradients(*batch(seed))
    calls.factor *= 2.0
    for seed in range(OFTEN, OFTEN + 5):
        found = gradients(*batch(seed))
        torch.testing.assert_close(found, calls.factor * expected(entropy, *batch(seed)))


def test_a_user_with_numbers_that_are_not_finite_changes_no_other_user() -> None:
    gradients = LossGradient(entropy)
    for seed in range(OFTEN + 3):
        gradients(*batch(seed))
    outputs, targets = batch(99)
    alone = gradients(outputs, targets)
    outputs[2] = torch.nan
    assert torch.equal(gradients(outputs, targets)[[0, 1, 3, 4, 5]], alone[[0, 1, 3, 4, 5]])


def focal(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (1.0 - outputs.softmax(-1).gather(1, targets[:, None])[:, 0]).square() * entropy(outputs, targets)


@pytest.mark.parametrize("loss", [entropy, weighted, focal])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_a_softmax_of_few_classes_has_each_users_bits_wherever_the_user_is(loss: Loss, rows: int) -> None:
    gradients, (outputs, targets) = LossGradient(loss), batch(5, 37, rows)
    together = gradients(outputs, targets)
    torch.testing.assert_close(together, expected(loss, outputs, targets))
    rolled = gradients(outputs.roll(11, 0), targets.roll(11, 0)).roll(-11, 0)
    few = gradients(outputs[9:21], targets[9:21])
    assert torch.equal(together, rolled)
    assert torch.equal(together[9:21], few)


def test_only_so_many_layouts_are_kept_and_each_serves_any_number_of_users() -> None:
    calls = Calls(entropy)
    gradients = LossGradient(calls)
    for rows in range(1, MOST + 4):
        for _ in range(OFTEN + 1):
            gradients(*batch(rows, rows=rows))
    assert len(gradients._recorded) == MOST
    gradients._due, calls.count = False, 0
    for users in (1, 2, 5, 50):
        outputs, targets = batch(users, users=users, rows=3)
        torch.testing.assert_close(gradients(outputs, targets), expected(entropy, outputs, targets))
    assert calls.count == 0


@pytest.mark.parametrize("loss", [entropy, weighted, mixing, overwriting, renaming, logistic])
def test_in_inference_mode_it_has_the_same_bits(loss: Loss) -> None:
    usual, inside = LossGradient(loss), LossGradient(loss)
    for seed in range(OFTEN + 4):
        outputs, targets = batch(seed)
        gradient = usual(outputs[:, 1:], targets[:, 1:])  # a part of what lies in memory, as short batches are
        with torch.inference_mode():
            inside.begin()
            outputs, targets = outputs.clone(), targets.clone()
            assert torch.equal(inside(outputs[:, 1:], targets[:, 1:]), gradient)
    assert inside._constant


def test_torchs_compiler_is_not_loaded_for_it() -> None:
    """It takes a second, and torch wraps what a mode's class defines in a function that loads it."""
    assert not hasattr(_Recorder.__torch_dispatch__, "__wrapped__")


def test_what_only_the_value_needs_is_left_out() -> None:
    gradients = LossGradient(entropy)
    for seed in range(OFTEN + 2):
        gradients(*batch(seed))
    (recorded,) = gradients._recorded.values()
    with _Recorder() as mapped:
        gradients._mapped(*batch(77))
    assert recorded is not None
    assert len(recorded(6).calls) < len(mapped.calls) / 2
    assert sum(call.operation is _turn for call in recorded(6).calls) == 2, "outputs, and the gradient at the softmax"
    named = [(call.operation, call.places) for call in recorded(6).calls]
    assert len(named) == len({*map(str, named)}), "nothing is done twice"

"""The model that engines train: made ready for private training, and put back between users.

What a model may have, and who trains it then:

* frozen parameters and constant buffers (`position_ids`, `inv_freq`): every engine;
* BatchNorm in training mode, or any buffer that training changes: the loop, which puts every buffer back before
  the next user. Buffers never travel, so the released model keeps its initial statistics;
* trained parameters in another dtype than float32: the loop, in that dtype;
* dropout inside of `nn.LSTM` or of a function: the loop, with torch's generator seeded by (user, round).
"""

from __future__ import annotations

import torch
from torch import nn

from fieldfare_client.task_faults import show_dtype
from fieldfare_client.training.dropout import key_dropout, unkeyed


def make_ready(model: nn.Module) -> nn.Module:
    """Key the dropout of `model`, and set it to training, in place. Modules that it keeps in eval mode stay there."""
    if not model.training:
        model.train()
    key_dropout(model)
    return model


def why_alone(model: nn.Module) -> str:
    """Return why users of `model` cannot share a batched product; empty where they can."""
    for name, module in model.named_modules():
        # BatchNorm that keeps no statistics is a function of a user's own batch.
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.training and module.running_mean is not None:
            return (
                f"{name or 'the model'} ({type(module).__name__}) changes its running statistics while it trains, and "
                "users of one batch would share them"
            )
    for name, value in model.named_parameters():
        if value.requires_grad and value.dtype != torch.float32:
            return f"parameter {name} is {show_dtype(value.dtype)}, and batches of users train in float32"
        if value._backward_hooks:
            return f"parameter {name} has a hook on its gradient, which is that of one user"
    if module_name := unkeyed(model):
        return f"{module_name} has dropout that cannot be keyed by user and round"
    return ""


def one_dtype(model: nn.Module) -> torch.dtype | None:
    """Return the dtype of all floating-point parameters of `model`; None where there are several."""
    dtypes = {value.dtype for value in model.parameters() if value.is_floating_point()}
    return dtypes.pop() if len(dtypes) == 1 else None


class Buffers:
    """The buffers of a model as they are now, to be put back after each user. Empty for most models.

    A frozen embedding with a `max_norm` would shorten the rows that a user looks up, for the users after it: all
    of its rows are shortened now.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        for module in model.modules():
            if isinstance(module, nn.Embedding | nn.EmbeddingBag):
                _shorten(module.weight, module.max_norm, module.norm_type)
        self._kept = [
            (module, name, value, None if value is None else value.detach().clone())
            for module in model.modules()
            for name, value in module._buffers.items()
        ]

    def restore(self) -> None:
        """Put every buffer back: its values, and the tensor itself where it was replaced. Added ones are removed."""
        names: dict[nn.Module, set[str]] = {}
        with torch.no_grad():
            for module, name, value, kept in self._kept:
                if value is not None and kept is not None:
                    if value.shape != kept.shape or value.dtype != kept.dtype:  # resized in place
                        value = kept.clone()
                    else:
                        value.copy_(kept)
                module._buffers[name] = value
                names.setdefault(module, set()).add(name)
        for module in self._model.modules():
            if module._buffers:
                for name in set(module._buffers) - names.get(module, set()):
                    del module._buffers[name]

    def changed(self) -> bool:
        """Return whether any buffer differs from what was kept."""
        for module, name, value, kept in self._kept:
            now = module._buffers.get(name)
            if now is not value or (now is not None and kept is not None and not same_numbers(now, kept)):
                return True
        # Nothing that was there differs: another number of buffers means that some were added.
        count = sum(len(module._buffers) for module in self._model.modules())
        return count != len(self._kept)


def _shorten(weight: torch.Tensor, norm: float | None, kind: float) -> None:
    """Shorten every row of a frozen `weight` as a look-up would: to a `kind`-norm of at most `norm`, in place."""
    if norm is not None and not weight.requires_grad:
        torch.embedding_renorm_(weight, torch.arange(len(weight), device=weight.device), norm, kind)


def same_numbers(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compare bit for bit but for the kind of NaN."""
    alike = a.shape == b.shape and a.dtype == b.dtype
    return alike and (torch.equal(a, b) or bool(torch.all((a == b) | ((a != a) & (b != b)))))

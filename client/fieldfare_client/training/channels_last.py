"""The plain engine with the channels of an image next to each other in memory.

PyTorch keeps an image as one plane after another. On a CPU its convolutions then rearrange what they read and
write, and its maximum over a window goes number by number: a third of a step of a small network. With channels
together (`torch.channels_last`) neither is so. The arithmetic is the same, to round-off: sums have another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from fieldfare_client.training.engines import Chunk
from fieldfare_client.training.loop import LoopEngine


class ChannelsLastLoop(LoopEngine):
    """For models with convolutions over images, on a CPU. A model that asks for planes (`view`) fails in torch."""

    @staticmethod
    def suits(model: nn.Module, device: torch.device) -> bool:
        """Return whether it may be faster for `model` than the loop."""
        images = any(isinstance(module, nn.Conv2d) for module in model.modules())
        return images and device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]

    def updates(self, start: torch.Tensor, chunk: Chunk, out: torch.Tensor) -> None:
        with _gradients_alike(self.model):
            super().updates(start, chunk, out)

    def gather(self, inputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        gathered = super().gather(inputs, rows)
        return gathered.contiguous(memory_format=torch.channels_last) if gathered.ndim == 4 else gathered


@contextmanager
def _gradients_alike(model: nn.Module) -> Iterator[None]:
    """Order the gradient of a maximum over windows by its values inside the block.

    A network flattens its last maximum, whose gradient comes back in planes: its backward pass would rearrange
    what it makes of it, which is larger. Others are left alone: two hooks a step cost as much as a small layer.
    """
    hooks: dict[nn.Module, Any] = {}
    needed: set[nn.Module] = set()

    def arrange(module: nn.Module, gradient: torch.Tensor) -> torch.Tensor:
        if not gradient.is_contiguous(memory_format=torch.channels_last):
            needed.add(module)
        elif module not in needed and module in hooks:  # one module may stand in several places of a model
            hooks.pop(module).remove()
        return gradient.contiguous(memory_format=torch.channels_last)

    def arrange_gradient(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, torch.Tensor) and output.ndim == 4 and output.requires_grad:
            output.register_hook(partial(arrange, module))  # type: ignore[no-untyped-call]

    hooks |= {m: m.register_forward_hook(arrange_gradient) for m in model.modules() if isinstance(m, nn.MaxPool2d)}
    try:
        yield
    finally:
        for hook in hooks.values():
            hook.remove()

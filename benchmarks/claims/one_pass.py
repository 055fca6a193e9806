"""Train a whole cohort in one pass, where each user has one row and takes one step. For rehearsals only.

One step from a common point needs no model a user: one forward pass and one backward pass serve the cohort. The norm of
each user's update follows from what the passes leave at every layer, and the clipped sum is one weighted product a
layer, so no update is ever stored. On images that is 10 times as fast as vmap, and 100 times as fast as one user at a
time.

The sums are those of `fieldfare_client.training.Trainer` to round-off, which a test compares, on whatever device. Nodes
do not train like this, because round-off would depend on who else trains: under `add_remove` that is secret.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from one_pass_verse import OnePassVerse
from torch import nn
from torch.nn.functional import one_hot

from fieldfare.clipping import ClippingSpec
from fieldfare.schema import Schema
from fieldfare_client import app as client_app
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.training.engines import is_plain
from fieldfare_client.training.trainer import CohortUpdate
from fieldfare_client.users import UserTable
from fieldfare_research.chess import ChessTask
from fieldfare_research.fashion import FashionTask


@dataclass(frozen=True)
class _Layer:
    """What one layer's gradients are made of: user n's weight gradient is `above[n].T @ below[n]`.

    above: gradients at the outputs, (users, places, out). below: inputs, (users, places, in). A linear layer has one
    place; a convolution has one for each pixel of its output, a recurrent layer one for each step.
    """

    above: torch.Tensor
    below: torch.Tensor


def _dot(a: _Layer, b: _Layer) -> torch.Tensor:
    """Inner products of each user's gradients (weight and bias) in `a` and in `b`, (users,)."""
    places, width = a.above.shape[1:]
    if places < width:
        # <A'B, C'D> = sum of (A C') (B D'), where the bias adds 1 to each entry of the second.
        outer = torch.bmm(a.above, b.above.transpose(1, 2)) * (torch.bmm(a.below, b.below.transpose(1, 2)) + 1)
        return outer.sum((1, 2))
    one = torch.bmm(a.above.transpose(1, 2), a.below)
    other = one if a is b else torch.bmm(b.above.transpose(1, 2), b.below)
    return (one * other).sum((1, 2)) + (a.above.sum(1) * b.above.sum(1)).sum(1)


def _patches(images: torch.Tensor, size: int, stride: int) -> torch.Tensor:
    """(users, channels, side, side) -> (users, places, channels x size x size)."""
    windows = images.unfold(2, size, stride).unfold(3, size, stride)
    users, channels, high, wide = windows.shape[:4]
    return windows.permute(0, 2, 3, 1, 4, 5).reshape(users, high * wide, channels * size * size)


class OnePass:
    """`Trainer.train` for `FashionTask(model="cnn-small")` and `ChessTask`, one plain step of one row, and flat
    clipping."""

    def __init__(self, task: FashionTask | ChessTask, settings: TrainingSettings, device: str = "cpu") -> None:
        self._task, self._rate, self._clip = task, settings.client.learning_rate, settings.clipping
        self._device = torch.device(device)
        self._schema = Schema.of(task.build_model())

    @staticmethod
    def fits(task: Any, settings: TrainingSettings) -> bool:
        """Whether this class trains what `settings` ask for."""
        client = settings.client
        return (
            (isinstance(task, ChessTask) or (isinstance(task, FashionTask) and task.model == "cnn-small"))
            and (client.steps, client.batch_size) == (1, 1)
            and is_plain(client)
            and settings.clipping.kind == "flat"
        )

    def train(
        self,
        points: Sequence[torch.Tensor],
        weights: Sequence[float],
        table: UserTable,
        users: NDArray[np.int64],
        *,
        at_round: int,
        queries: int = 1,
    ) -> CohortUpdate:
        """As `Trainer.train`."""
        rows = table.rows(users, self._device)
        inputs, targets = self._task.prepare(rows.columns)
        if len(inputs) != len(users):
            raise ValueError("a user has not one row")
        layers_at = self._recurrent_layers if isinstance(self._task, ChessTask) else self._layers
        passes = [layers_at(point.to(self._device), inputs, targets) for point in points]
        count, total = len(points), torch.zeros(queries, self._schema.numel, dtype=torch.float64)
        dots = {
            (i, j): sum(_dot(a, b) for a, b in zip(passes[i], passes[j], strict=True)).double()  # type: ignore[union-attr]
            for i in range(count)
            for j in range(i, count)
        }
        for query in range(queries):
            # A user's update is -rate x gradient, and a query asks for the sum of weight x update over the points.
            shares = [-self._rate * weight for weight in weights[query * count : (query + 1) * count]]
            squares = sum(shares[i] * shares[j] * dot * (1 if i == j else 2) for (i, j), dot in dots.items())
            factors = _factors(self._clip, squares.clamp(min=0).sqrt()).float()  # type: ignore[union-attr]
            for share, layers in zip(shares, passes, strict=True):
                total[query] += torch.cat(
                    [part.flatten() for layer in layers for part in _sums(layer, share * factors)]
                ).cpu()
        return CohortUpdate(total.view(-1), len(users))

    def norms(self, point: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Lengths of each user's gradient, (users,)."""
        parts = [_dot(layer, layer) for layer in self._layers(point, inputs, targets)]
        return torch.stack(parts).sum(0).clamp(min=0).sqrt()

    def _layers(self, point: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor) -> list[_Layer]:
        """Forward and back: every layer's inputs and the gradients of the users' losses at its outputs."""
        w1, b1, w2, b2, w3, b3, w4, b4 = self._schema.split(point.float()).values()
        users = len(inputs)
        with torch.no_grad():
            patches = _patches(nn.functional.pad(inputs, (2, 2, 2, 2)), 8, 3)
            first = torch.tanh(nn.functional.linear(patches, w1.flatten(1), b1))
            side = round(first.shape[1] ** 0.5)
            seen = _patches(first.transpose(1, 2).reshape(users, -1, side, side), 4, 2)
            second = torch.tanh(nn.functional.linear(seen, w2.flatten(1), b2))
            flat = second.transpose(1, 2).reshape(users, -1)
            third = torch.tanh(nn.functional.linear(flat, w3, b3))
            outputs = nn.functional.linear(third, w4, b4)
            above4 = torch.softmax(outputs, 1) - one_hot(targets, outputs.shape[1])
            above3 = (above4 @ w4) * (1 - third.square())
            back2 = (above3 @ w3) * (1 - flat.square())
            small = round((flat.shape[1] // w2.shape[0]) ** 0.5)
            above2 = back2.view(users, -1, small * small).transpose(1, 2).contiguous()
            back1 = inputs.new_zeros(users, side, side, w2.shape[1])
            for row, column in np.ndindex(4, 4):
                part = (above2 @ w2[:, :, row, column]).view(users, small, small, -1)
                back1[:, row : row + 2 * small : 2, column : column + 2 * small : 2] += part
            above1 = back1.view(users, side * side, -1) * (1 - first.square())
        return [
            _Layer(above1, patches),
            _Layer(above2, seen),
            _Layer(above3[:, None], flat[:, None]),
            _Layer(above4[:, None], third[:, None]),
        ]

    def _recurrent_layers(self, point: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor) -> list[_Layer]:
        """As `_layers`, for `fieldfare_research.chess.Recurrent`; back through the months by hand, which is several
        times as fast as autograd."""
        given_w, given_b, kept_w, kept_b, head_w, head_b = self._schema.split(point.float()).values()
        width, months = kept_w.shape[1], range(inputs.shape[1])
        with torch.no_grad():
            given = nn.functional.linear(inputs, given_w, given_b)
            hidden, steps = inputs.new_zeros(len(inputs), width), []
            for month in months:
                kept = torch.addmm(kept_b, hidden, kept_w.T)
                gates = torch.sigmoid(given[:, month, : 2 * width] + kept[:, : 2 * width])
                fresh = torch.addcmul(given[:, month, 2 * width :], gates[:, :width], kept[:, 2 * width :])
                candidate = torch.tanh(fresh)
                steps.append((hidden, kept, gates, candidate))
                hidden = torch.lerp(candidate, hidden, gates[:, width:])
            before, kept, gates, candidate = (torch.stack(parts, 1) for parts in zip(*steps, strict=True))
            reset, keep = gates.split(width, 2)
            seen = torch.cat((torch.cat((before[:, 1:], hidden[:, None]), 1), inputs), 2)
            outputs = nn.functional.linear(seen, head_w, head_b).squeeze(2)
        outputs.requires_grad_()
        (above,) = torch.autograd.grad(self._task.loss(outputs, targets).sum(), outputs)
        with torch.no_grad():
            # What a month's new state passes on to the pre-activations of candidate, keep and reset.
            to_candidate = (1 - keep) * (1 - candidate.square())
            to_keep = (before - candidate) * keep * (1 - keep)
            to_reset = to_candidate * kept[:, :, 2 * width :] * reset * (1 - reset)
            to_kept = torch.cat((to_reset, to_keep, to_candidate * reset), 2)
            at_state = above[:, :, None] * head_w[:, :width]
            flow, states = torch.zeros_like(hidden), []
            for month in reversed(months):
                flow = flow + at_state[:, month]
                states.append(flow)
                above_kept = (flow.view(len(flow), 1, width) * to_kept[:, month].view(len(flow), 3, width)).flatten(1)
                flow = torch.addmm(flow * keep[:, month], above_kept, kept_w)
            at_state = torch.stack(states[::-1], 1).repeat(1, 1, 3)
            to_given = torch.cat((to_reset, to_keep, to_candidate), 2)
        return [
            _Layer(at_state * to_given, inputs),
            _Layer(at_state * to_kept, before),
            _Layer(above[:, :, None], seen),
        ]


def _sums(layer: _Layer, factors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums over users of factor x gradient: (weight, bias)."""
    above = (layer.above * factors[:, None, None]).flatten(0, 1)
    return above.T @ layer.below.flatten(0, 1), above.sum(0)


def _factors(spec: ClippingSpec, norms: torch.Tensor) -> torch.Tensor:
    """What each user's update is multiplied by, (users,)."""
    ((_, part),) = spec.blocks([slice(0, 1)], 1)
    return part.factors(norms)


USUAL = client_app._trainer


@lru_cache(maxsize=8)
def _trainer(name: str, settings_json: str, device: str) -> Any:
    task, settings = client_app.task_of(name), TrainingSettings.parse(json.loads(settings_json))
    if OnePass.fits(task, settings):
        return OnePass(task, settings, device)
    if OnePassVerse.fits(task, settings):
        return OnePassVerse(task, settings)
    return USUAL(name, settings_json, device)


@contextmanager
def one_pass() -> Iterator[None]:
    """Train what fits in one pass, in this process's own nodes; everything else as ever."""
    client_app._trainer = _trainer
    try:
        yield
    finally:
        client_app._trainer = USUAL

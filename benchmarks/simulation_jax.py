"""The lean private round in JAX: `python simulation_jax.py MODEL COHORT`, a part of `simulation.py`.

A whole round is one compiled program: `vmap` of `grad` over the cohort, a `scan` over batches, clipping, Gaussian noise
and a step. Nothing is checked, charged or stored; no noise is correlated. Models of `Linear` and ReLU only. Compiled in
the first round, which does not count.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
import torch

from simulation_models import BATCH, CLIP, NOISE, POPULATION, RATE, ROWS, columns, largest, make
from simulation_turns import Turnstile


def loss(weights: list[Any], inputs: Any, targets: Any) -> Any:
    """Mean cross-entropy of a stack of layers, each a pair of weight (out, in) and bias (out,)."""
    values = inputs.reshape(len(inputs), -1)
    for weight, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        values = jax.nn.relu(values @ weight.T + bias)
    logits = values @ weights[-2].T + weights[-1]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], 1).mean()


def make_round(x: Any, y: Any, cohort: int) -> Any:
    """(weights, key, first user) -> weights."""
    gradients = jax.vmap(jax.grad(loss))

    def one_round(weights: list[Any], key: Any, first: Any) -> list[Any]:
        shuffling, noising = jax.random.split(key)
        users = (first + jnp.arange(cohort))[:, None] * ROWS
        order = users + jax.random.uniform(shuffling, (cohort, ROWS)).argsort(1)
        batches = order.reshape(cohort, ROWS // BATCH, BATCH).swapaxes(0, 1)

        def step(local: list[Any], batch: Any) -> tuple[list[Any], None]:
            found = gradients(local, x[batch], y[batch])
            return [value - RATE * gradient for value, gradient in zip(local, found, strict=True)], None

        copies = [jnp.broadcast_to(value, (cohort, *value.shape)) for value in weights]
        local, _ = jax.lax.scan(step, copies, batches)
        moved = [after - before for after, before in zip(local, weights, strict=True)]
        update = jnp.concatenate([value.reshape(cohort, -1) for value in moved], 1)
        update *= jnp.minimum(CLIP / jnp.linalg.norm(update, axis=1, keepdims=True), 1.0)
        total = update.sum(0)
        total += NOISE * CLIP * jax.random.normal(noising, total.shape)
        parts = jnp.split(total, np.cumsum([value.size for value in weights])[:-1].tolist())
        return [value + part.reshape(value.shape) / cohort for value, part in zip(weights, parts, strict=True)]

    return jax.jit(one_round)


def main(name: str, cohort: int) -> None:
    rows = columns(name, POPULATION * cohort)
    weights = [jnp.asarray(value.detach().numpy()) for value in make(name).parameters()]
    one_round = make_round(jnp.asarray(rows["x"]), jnp.asarray(rows["y"]), cohort)
    turnstile, first, key = Turnstile(), 0, jax.random.key(0)
    while turnstile.enter():
        key, own = jax.random.split(key)
        weights = jax.block_until_ready(one_round(weights, own, first))
        first = (first + cohort) % (POPULATION * cohort)
    print(largest(torch.from_numpy(np.array(value)) for value in weights))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

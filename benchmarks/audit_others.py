"""Plays other people's private releases with canaries, and reads them with the estimator of `fieldfare audit`.

    python benchmarks/audit_others.py flower        # Flower's server-side wrapper, as it is installed
    python benchmarks/audit_others.py unequal       # the same, where the canary has half of all examples
    python benchmarks/audit_others.py jax_privacy   # in an environment that has jax_privacy

Each of `CLIENTS` canaries takes part with its full clip norm in a coordinate of its own, or has an update of a
millionth (Flower's wrapper divides by the norm). A canary's score is the likelihood ratio of the Gaussian mechanism, of
which the noise multiplier speaks, on what is released in its coordinate. Neither library states an epsilon of its own
here: what is called charged is the Gaussian mechanism at their noise multiplier, and one release.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fieldfare.accounting import PrivacyLoss
from fieldfare_server.evidence.canaries import estimates

CLIENTS, PLAYS, CLIP, NOISE = 20, 320, 0.5, 1.0

Release = Callable[[NDArray[np.float32], int], NDArray[np.float64]]
"""From the updates (clients, d) and the number of the play to the released mean, (d,)."""


def flower(examples: int = 10) -> Release:
    """`DifferentialPrivacyServerSideFixedClipping` around FedAvg; the first client has `examples`, the others 10."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

    logging.disable(logging.INFO)
    from fieldfare_flower.local_grid import assume_task_identity

    assume_task_identity()

    def release(updates: NDArray[np.float32], play: int) -> NDArray[np.float64]:
        wrapper = DifferentialPrivacyServerSideFixedClipping(FedAvg(), NOISE, CLIP, CLIENTS)
        wrapper.current_arrays = ArrayRecord([np.zeros(CLIENTS, np.float32)])
        replies = []
        for node, update in enumerate(updates):
            told = MetricRecord({"num-examples": 10 if node else examples})
            content = RecordDict({"arrays": ArrayRecord([update]), "metrics": told})
            sent = Message(RecordDict(), node + 1, "train")
            replies.append(Message(content, reply_to=sent))
        arrays, _ = wrapper.aggregate_train(1, replies)
        assert arrays is not None
        return np.asarray(arrays.to_numpy_ndarrays()[0], np.float64)

    return release


def jax_privacy() -> Release:
    """`clipped_grad` of one gradient a user, and `gaussian_privatizer`."""
    import jax
    import jax.numpy as jnp
    import jax_privacy as jp

    grad = jp.clipped_grad(
        lambda params, row: jnp.vdot(params, row), l2_clip_norm=CLIP, batch_argnums=1, normalize_by=float(CLIENTS)
    )
    bound = float(grad.sensitivity())

    def release(updates: NDArray[np.float32], play: int) -> NDArray[np.float64]:
        zero = jnp.zeros(CLIENTS)
        privatizer = jp.noise_addition.gaussian_privatizer(stddev=NOISE * bound, prng_key=jax.random.key(play))
        noised, _ = privatizer.update(grad(zero, jnp.asarray(updates)), privatizer.init(zero))
        return np.asarray(noised, np.float64)

    return release


def audit(release: Release, canaries: int = CLIENTS) -> str:
    """A table of the trade-off that the first `canaries` coordinates of all plays show."""
    rng = np.random.default_rng(0)
    included, excluded = [], []
    for play in range(PLAYS * (CLIENTS // canaries) // (1 if canaries == CLIENTS else 4)):
        there = rng.random(CLIENTS) < 0.5
        seen = release(np.diag(np.where(there, CLIP, 1e-6)).astype(np.float32), play) * CLIENTS / CLIP
        scores = ((seen - 0.5) / NOISE**2)[:canaries]
        included += scores[there[:canaries]].tolist()
        excluded += scores[~there[:canaries]].tolist()
    size = min(len(included), len(excluded))
    found = estimates(np.array(included[:size]), np.array(excluded[:size]), PrivacyLoss(mu_squared=1 / NOISE**2))
    lines = [
        f"| {point['epsilon']:g} | {point['measured']:.4f} ({point['standard_error']:.4f}) | {point['charged']:.4f} |"
        for point in found.tradeoff
    ]
    bound = f"{found.threshold_lower_bound:.3f} at least (95 %), charged {found.claimed:.3f}"
    head = f"{2 * size} scores; epsilon at delta {found.delta}: {bound}"
    return "\n".join([head, "| epsilon | delta (se) | charged |", "|---|---|---|", *lines])


if __name__ == "__main__":
    releases: dict[str, Callable[[], Release]] = {
        "flower": flower,
        "unequal": lambda: flower(10 * (CLIENTS - 1)),
        "jax_privacy": jax_privacy,
    }
    print(audit(releases[sys.argv[1]](), 1 if sys.argv[1] == "unequal" else CLIENTS))

"""Running noise of B whose coefficients are a sum of decays: one buffer a decay."""

from __future__ import annotations

from typing import Unpack

from fieldfare.errors import WrongForm
from fieldfare.noise import SecureNoise
from fieldfare.streams.chunked import ChunkedStream, Rule, StreamSettings, require_vector
from fieldfare.streams.ops import Array, Vector


class BufferStream(ChunkedStream):
    """Toeplitz B with beta_0 = 1 and beta_t = sum_i omega_i theta_i^(t-1); `omega`, `theta` shape (m,). m
    buffers.

    Row t is z_t + sum_i omega_i S_i, then S_i <- theta_i S_i + z_t (buffered linear Toeplitz, Dvijotham,
    McMahan, Pillutla, Steinke, Thakurta 2024). `skip` replays every round since the last restart.
    """

    name = "buffers"

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        omega: Vector,
        theta: Vector,
        **settings: Unpack[StreamSettings],
    ) -> None:
        self._omega, self._theta = require_vector("omega", omega), require_vector("theta", theta)
        if len(self._omega) != len(self._theta):
            raise WrongForm(f"{len(self._omega)} omega, {len(self._theta)} theta", "must be as many.")
        coefficients = self._omega.tobytes() + self._theta.tobytes()
        super().__init__(numel, noise, horizon, slots=len(self._omega), coefficients=coefficients, **settings)

    def _rule(self, t: int, age: int) -> Rule:
        ops, omega, theta = self._ops, self._omega, self._theta

        def apply(lo: int, z: Array, out: Array, kept: Array) -> None:
            if not len(theta):
                out[:] = z
                return
            ops.combine(out, z, omega, kept)
            ops.decay(kept, theta, z)

        return apply

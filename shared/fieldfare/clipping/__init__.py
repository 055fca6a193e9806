"""Clipping: what bounds one user's contribution, so that noise of a known size hides it. One kind a file.

Every kind maps a user's update v (d,) to a vector of norm at most `spec.bound`, for every v: zero, denormal,
so large that its float32 norm overflows, NaN. Only clipping limits what one user can change; all later steps
are noise and post-processing. Where clients train from several points, they combine the results first and
clip once: clipping each result and combining later has sensitivity (|a| + |1 - a|) x norm (DiSK, Zhang et al.
2024, section 4.2).

| kind | result for ||v|| = r | `bound` |
|---|---|---|
| `flat` | v min(1, norm / r) | norm |
| `automatic` | v norm / (r + stabiliser) (Bu et al. 2023) | norm |
| `normalised` | (v / norm) min(1, norm / r) (De et al. 2022): the step is learning_rate x direction | 1 |
| `per-layer` | each layer flat to its own norm c_l, sum of c_l^2 = norm^2 | norm |
| `adaptive-quantile` | as `normalised`, with a norm that follows a quantile of ||v|| (Andrew et al. 2021) | 1 |

Where updates are divided by the norm, it decides the bias and not the step ("eta = tau / C"). Norms at or
below the median of ||v|| are near the optimum for private regression (Bombari et al. 2025): clipping slows
the descent by the factor mu = P(r <= norm), while the noise grows with the norm.
"""

from fieldfare.clipping.adaptive_quantile import AdaptiveQuantile
from fieldfare.clipping.automatic import Automatic
from fieldfare.clipping.base import MARGIN, ClippingSpec, Layout, clippings, parse
from fieldfare.clipping.flat import Flat
from fieldfare.clipping.kernels import clip_, count_over, norms
from fieldfare.clipping.normalised import Normalised
from fieldfare.clipping.one import clip_one
from fieldfare.clipping.per_layer import PerLayer

__all__ = [
    "MARGIN",
    "AdaptiveQuantile",
    "Automatic",
    "ClippingSpec",
    "Flat",
    "Layout",
    "Normalised",
    "PerLayer",
    "clip_",
    "clip_one",
    "clippings",
    "count_over",
    "norms",
    "parse",
]

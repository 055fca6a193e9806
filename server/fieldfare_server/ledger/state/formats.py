"""How a run draws its noise, by the name of its source."""

from __future__ import annotations

from typing import Final, Literal

# The format of every run: how its noise is drawn and its charge is computed.
FORMAT: Final = 3
# The noise source of a run with a fixed seed: not private. Every other source has a random key for this run alone.
SEEDED: Final = "seeded"
# Ends the name of a source whose floats are those of map 2, drawn from key and row alone. A converted run has
# one (`sql.convert`): its coming rounds must subtract the very rows that its past rounds added.
BOX_MULLER: Final = "-box-muller"


def has_nonces(noise_source: str) -> bool:
    """Whether each committed round of a run has a nonce.

    A run with a fixed seed has none: it is not private, and its seed must give the same model.
    """
    return noise_source != SEEDED and not noise_source.endswith(BOX_MULLER)


def noise_map(noise_source: str) -> Literal[2, 3]:
    """How a source turns bits into floats, from a run's first row to its last."""
    return 2 if noise_source.endswith(BOX_MULLER) else 3

"""Made-up verse in the form of `fieldfare data fetch poems`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fieldfare_client.storage import write
from fieldfare_client.users import UserTable


def write_verse(folder: Path) -> None:
    """Write 40 poets of one to four windows, many of which end early, and six of each other part."""
    random = np.random.default_rng(0)
    for part, users in (("train", 40), ("tune", 6), ("test", 6), ("public", 6)):
        sizes = 1 + np.arange(users) % 4
        tokens = random.integers(1, 2001, (sizes.sum(), 33)).astype(np.int16)
        tokens[np.arange(33)[None, :] >= random.integers(2, 34, sizes.sum())[:, None]] = 0
        rank = np.concatenate([np.arange(size) for size in sizes]).astype(np.uint8)
        names = [f"{part}-{user}" for user in range(users)]
        table = UserTable(names, np.concatenate([[0], np.cumsum(sizes)]), {"tokens": tokens, "rank": rank})
        write(folder / f"poems-{part}.arrow", [table])
    (folder / "poems.json").write_text(json.dumps({"tables": {"poems-train.arrow": {"sha256": "x"}}}))

"""Whatever a node sends, reading it may refuse it and nothing else: thousands of made-up replies, and the corpus."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from replies import honest, read_all

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())
OUTCOMES = {"read", "users", "summed", "schema", "dtype", "shape", "version", "round", "non-finite"}


def test_honest_replies_are_read() -> None:
    assert [read_all(bytes([kind])) for kind in range(3)] == ["summed", "users", "summed"]
    assert len({frozenset(honest(kind)) for kind in range(3)}) == 3


@given(st.binary(max_size=200))
@settings(max_examples=3000, deadline=None, derandomize=True)
def test_no_reply_raises_anything_but_a_refusal(data: bytes) -> None:
    read_all(data)


@pytest.mark.parametrize("kind", range(4))
def test_random_edits_of_honest_replies_are_read_or_refused(kind: int) -> None:
    """A fixed generator, so that the cases are the same everywhere."""
    generator = np.random.default_rng(kind)
    outcomes = Counter(read_all(bytes([kind]) + generator.bytes(int(generator.integers(1, 60)))) for _ in range(1000))
    assert len(outcomes) > 1, outcomes


def test_the_corpus_reaches_every_outcome() -> None:
    assert 20 <= len(CORPUS) <= 1000
    outcomes = Counter(read_all(path.read_bytes()) for path in CORPUS)
    assert set(outcomes) >= OUTCOMES, outcomes

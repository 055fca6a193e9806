"""The record of who took part when agrees with a plain list of rounds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fieldfare.participation_record import ParticipationRecord


@given(st.lists(st.sets(st.integers(0, 30), max_size=10), max_size=12))
def test_participation_record_is_what_a_plain_record_is(rounds: list[set[int]]) -> None:
    record = ParticipationRecord()
    for index, users in enumerate(rounds):
        record.add(index, np.array(sorted(users), dtype=np.int64))
    plain = [tuple(t for t, users in enumerate(rounds) if user in users) for user in range(31)]
    assert record.patterns(np.arange(31)) == plain
    last, count = record.last_and_count(np.arange(31))
    assert last.tolist() == [pattern[-1] if pattern else -1 for pattern in plain]
    assert count.tolist() == [len(pattern) for pattern in plain]
    wanted = [len(pattern) for pattern in plain if pattern]
    assert record.histogram() == {n: wanted.count(n) for n in set(wanted)}

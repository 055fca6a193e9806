"""The waits for parts of a message are shortened where Flower has them, and left alone elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from flwr.supercore.inflatable import inflatable_utils

from fieldfare_flower.waits import FIRST_WAIT, LONGEST_WAIT, limit_part_waits, shorten_part_waits

MODULE = "flwr.supercore.inflatable.inflatable_utils"
PULLS = ("pull_objects", "pull_and_inflate_object_from_tree")


def test_the_installed_flower_asks_sooner_for_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = [getattr(inflatable_utils, name).__kwdefaults__ for name in PULLS]
    for each in defaults:
        monkeypatch.setitem(each, "initial_backoff", 1)
        monkeypatch.setitem(each, "backoff_cap", 10)
    for _ in range(2):
        assert shorten_part_waits()
        assert [(each["initial_backoff"], each["backoff_cap"]) for each in defaults] == [(FIRST_WAIT, LONGEST_WAIT)] * 2


def test_the_installed_flower_gives_up_when_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(inflatable_utils.pull_objects.__kwdefaults__, "max_time", 7200)
    assert limit_part_waits(3.5)
    assert inflatable_utils.pull_objects.__kwdefaults__["max_time"] == 3.5


@pytest.mark.parametrize("missing", [[MODULE], [f"{MODULE}:{name}" for name in PULLS]])
def test_a_flower_without_these_functions_is_left_alone_with_one_warning_each(
    missing: list[str], remove: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    remove(*missing)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not shorten_part_waits()
            assert not limit_part_waits(3.5)
    assert len(caplog.records) == 2


def test_functions_with_other_defaults_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(*, patience: float = 1.0, initial_backoff: str = "long") -> None: ...

    before = dict(pull.__kwdefaults__ or {})
    for name in PULLS:
        monkeypatch.setattr(inflatable_utils, name, pull)
    assert not shorten_part_waits()
    assert not limit_part_waits(3.5)
    assert pull.__kwdefaults__ == before

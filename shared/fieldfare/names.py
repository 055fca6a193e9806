"""The grammar of the names that people give to populations and runs."""

from __future__ import annotations

import re

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Letters, digits, '.', '_' and '-'. A name is safe as a file name and as a segment of a URL."""
LONGEST_NAME = 100
OWN_APP = "own Flower app"
"""Shown in the place of a task's name where a run trains the arrays of a Flower app (`run.task` is empty)."""


def is_name(text: str) -> bool:
    """Whether `text` is a valid name of at most `LONGEST_NAME` characters."""
    return len(text) <= LONGEST_NAME and re.fullmatch(NAME, text) is not None

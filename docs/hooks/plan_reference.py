"""MkDocs calls this for every page: the plan reference is made from the models that check plans."""

from __future__ import annotations

from typing import Any

from fieldfare_server.planning.reference import markdown

PLACE = "<!-- every table of a plan -->"


def on_page_markdown(text: str, **_: Any) -> str:
    """The page's Markdown, with the reference in its place."""
    return text.replace(PLACE, markdown()) if PLACE in text else text

"""MkDocs calls this for every page: the plan reference is made from the models that check plans."""

from __future__ import annotations

from typing import Any

from fieldfare_server.planning.reference import sections

PLACE = "<!-- every table of a plan -->"


def on_page_markdown(text: str, **_: Any) -> str:
    """The page's Markdown, with the reference in its place."""
    return text.replace(PLACE, markdown()) if PLACE in text else text


def markdown() -> str:
    """Return all sections as Markdown, for the page."""
    lines: list[str] = []
    table = ""
    for section in sections():
        if section.table != table:
            table = section.table
            lines += [f"## `[{table}]`", ""]
        if section.kind:
            lines += [f'### `kind = "{section.kind}"`', ""]
        lines += [section.about, ""]
        if section.keys:
            lines += ["| key | meaning | unit | default | takes |", "|---|---|---|---|---|"]
            lines += [
                "| " + " | ".join([f"`{key.name}`", key.meaning, key.unit or "—", f"`{key.default}`", key.takes]) + " |"
                for key in section.keys
            ]
            lines.append("")
    return "\n".join(lines)

"""A privacy statement as a document: Markdown, HTML, or JSON; and the card of a run's guarantee."""

from __future__ import annotations

import html
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

Row = tuple[str, str]

_STYLE = (
    "body{font:16px/1.55 system-ui,sans-serif;color:#16211c;background:#fff;margin:0}"
    "main{max-width:820px;margin:0 auto;padding:32px 20px}h1{font-size:26px;letter-spacing:-.02em}"
    "h2{font-size:18px;margin:32px 0 8px}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;vertical-align:top;padding:7px 16px 7px 0;border-bottom:1px solid #dde2dd}"
    "th{font-weight:500;color:#55615a;width:32%}td{overflow-wrap:anywhere}"
    ".promise,.warning{padding:14px 18px;border-radius:10px;background:#d8ebe5}.warning{background:#fbe6e4}"
    "@media(prefers-color-scheme:dark){body{background:#0d1312;color:#e6ede9}th{color:#a0b0a9}"
    "th,td{border-color:#2a3632}.promise{background:#173a33}.warning{background:#431d1a}}"
)


class Fact(BaseModel):
    """One line of the guarantee card."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="what it is about")
    value: str = Field(description="what holds")


class Guarantee(BaseModel):
    """What is promised, under which assumptions, and what is not covered."""

    model_config = ConfigDict(frozen=True)

    statement: str = Field(description="the promise in one sentence")
    facts: tuple[Fact, ...] = Field(description="its assumptions and figures")
    not_covered: tuple[str, ...] = Field(description="what it does not promise")
    # What makes the promise weaker than it reads: a delta, or a sampling rate, that does not fit the users.
    warnings: tuple[str, ...] = Field(default=(), description="what makes it weaker than it reads")


@dataclass(frozen=True)
class Section:
    """A heading, rows of (item, value), and lines of text below them."""

    title: str
    rows: tuple[Row, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """A privacy statement; `data` holds the same facts as JSON values."""

    title: str
    summary: str
    private: bool
    sections: tuple[Section, ...]
    data: dict[str, object]

    def to_json(self) -> dict[str, object]:
        """Return the facts for machines: numbers as numbers."""
        return self.data

    def to_markdown(self) -> str:
        """Return the statement for a repository or a review."""
        parts = [f"# {_escape(self.title)}", "", f"**{_escape(self.summary)}**"]
        for section in self.sections:
            parts += ["", f"## {section.title}", ""]
            if section.rows:
                parts += ["| item | what |", "|---|---|"]
                parts += [f"| {_escape(name)} | {_escape(value)} |" for name, value in section.rows]
                parts += [""] if section.lines else []
            parts += [f"- {_escape(line)}" for line in section.lines]
        return "\n".join(parts) + "\n"

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def to_html(self) -> str:
        """Return the statement as one self-contained page, which fetches nothing and runs no script."""
        body = "".join(_section_html(section) for section in self.sections)
        style = "promise" if self.private else "warning"
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html.escape(self.title)}</title><style>{_STYLE}</style></head><body><main>"
            f'<h1>{html.escape(self.title)}</h1><p class="{style}">{html.escape(self.summary)}</p>{body}'
            "</main></body></html>\n"
        )


def _section_html(section: Section) -> str:
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(value)}</td></tr>'
        for name, value in section.rows
    )
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in section.lines)
    table = f"<table>{rows}</table>" if rows else ""
    return f"<h2>{html.escape(section.title)}</h2>{table}" + (f"<ul>{lines}</ul>" if lines else "")


def _escape(text: str) -> str:
    """Return text that stays text in Markdown: names in a plan must not become links, tables or HTML."""
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())

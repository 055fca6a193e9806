"""Code blocks of Markdown pages, and a runner that takes a page from top to bottom as a reader does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}[^\n]*\n)+")
PROLOGUE = """set -euo pipefail
trap '{ pwd; echo "$FIELDFARE_HOME"; } > "$LEFT"; kill $(jobs -p) 2>/dev/null || true' EXIT
"""
"""Stop at the first error; at the end say where the shell is and which home it names, and end what it started."""
INCLUDED = re.compile(r'^--8<-- "([^":]+)(?::\d+)?"$', re.MULTILINE)
FROM_THE_TOP = "top of the checkout"
"""A block whose text before it says so starts in the checkout's directory, not where the block before it ended."""


@dataclass(frozen=True)
class Block:
    """One code block. `before` is the text between it and the block before it."""

    page: str
    language: str
    text: str
    before: str

    @property
    def name(self) -> str:
        """Its first line: how the list of blocks that are not run names it."""
        return self.text.strip().splitlines()[0]


def pages() -> list[Path]:
    """README, every page of the site (one that is only another file stands for that file), the report for Flower."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks/results/flower_secagg.md"]


def text_of(page: Path) -> str:
    """The page's Markdown with the files that it includes."""
    return INCLUDED.sub(lambda match: (ROOT / match[1]).read_text(), page.read_text())


def blocks_of(page: Path) -> list[Block]:
    """The page's blocks in order. Indented ones, of older pages, count as shell."""
    text = text_of(page)
    spans = [(m.start(), m.end(), m[1], m[2]) for m in FENCED.finditer(text)]
    for match in INDENTED.finditer(text):
        if (
            not any(start <= match.start() < end for start, end, _, _ in spans)
            and "::: " not in text[: match.start()][-200:]
        ):
            spans.append((match.start(), match.end(), "bash", textwrap.dedent(match[0])))
    blocks, last = [], 0
    for start, end, language, code in sorted(spans):
        blocks.append(Block(page.name, language, code, text[last:start]))
        last = end
    return blocks


class Reader:
    """Someone who types a page's blocks into a fresh shell, in a directory that looks like a checkout."""

    def __init__(self, work: Path) -> None:
        self.top = work / "checkout"
        self.top.mkdir()
        for name in ("deploy", "docs", "examples"):
            (self.top / name).symlink_to(ROOT / name)
        self.here = self.top
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        self.env = {**os.environ, "PATH": path, "FIELDFARE_HOME": str(work / "home"), "FLWR_HOME": str(work / "flwr")}
        self.env["PYTHONPATH"] = os.pathsep.join(part for part in sys.path if part)
        self.env.pop("FIELDFARE_LEDGER", None)

    def follow(self, block: Block) -> None:
        """Go where the text before a block says that it is typed."""
        if FROM_THE_TOP in block.before:
            self.here = self.top

    def run(self, block: Block, seconds: int = 280) -> str:
        """Run a block of shell or Python; returns its output, or raises `AssertionError` with it where it fails."""
        if block.language == "python":
            command = [sys.executable, "-c", block.text]
            named = re.match(r"# (\w+\.py)\n", block.text)
            if named:
                (self.here / named[1]).write_text(block.text)
        else:
            script = PROLOGUE + self._with_run(block.text)
            command = ["bash", "-c", script]
        left = self.top.parent / "left"
        env = {**self.env, "LEFT": str(left), "PWD": str(self.here)}
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, cwd=self.here, env=env, text=True, timeout=seconds, **both)
        assert done.returncode == 0, f"{block.page}, {block.name!r}:\n{block.text}\n{done.stdout}"
        if block.language != "python":
            here, self.env["FIELDFARE_HOME"] = left.read_text().splitlines()
            self.here = Path(here)
        return done.stdout

    def _with_run(self, script: str) -> str:
        """`RUN` stands for the id of the newest run, as in the help of every command."""
        lines = []
        for line in script.splitlines():
            if re.search(r"\bRUN\b", line):
                lines.append('RUN=$(ls -t "$FIELDFARE_HOME" | grep -E "^[0-9a-f]{12}$" | head -1)')
                line = re.sub(r"\bRUN\b", "$RUN", line)
            lines.append(line)
        return "\n".join(lines) + "\n"

"""docs/masked-sums.md, typed from its first line to its last: three hospitals with budgets of their own, a blinder and
a server on loopback. How long that takes is printed beside the 15 minutes that it should; it fails no test."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from support.pages import ROOT, Block, Reader, blocks_of

PAGE = ROOT / "docs/masked-sums.md"


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_hospitals_from_first_to_last(tmp_path: Path) -> None:
    """In one shell, as the page says: its last line ends what the lines before it started."""
    blocks = [block for block in blocks_of(PAGE) if block.language == "bash"]
    text = "".join(f'echo "@ $SECONDS"\n{block.text}\n' for block in blocks)
    said = Reader(tmp_path).run(Block(PAGE.name, "bash", text + 'echo "@ $SECONDS"\n', ""), seconds=1100)
    clock = [int(second) for second in re.findall(r"^@ (\d+)$", said, re.MULTILINE)]
    for block, (before, after) in zip(blocks, pairwise(clock), strict=True):
        print(f"{after - before:4} s  {block.name}")
    print(f"{clock[-1]:4} s of 900: a masked run with the nodes' own budgets, by one page")
    # The nodes' own files, the blinder's journal and the strangers' checker say the same of the run.
    assert re.search(r"^patients: \d+ users charged, at most epsilon 4 of 8$", said, re.MULTILINE)
    assert len(re.findall(r"^answer \d: round \d of run \w+, 3 nodes, ", said, re.MULTILINE)) == 6
    assert re.search(
        r"^yes: \(8\.0, 0\.0001\) for every user of patients; .*epsilon 4\.0; masked, ", said, re.MULTILINE
    )

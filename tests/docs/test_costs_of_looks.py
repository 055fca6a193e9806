"""What docs/evidence/index.md says that uncharged looks would have cost is what composition says."""

from __future__ import annotations

import math
import re

import pytest

from fieldfare.accounting.gaussian import gaussian_epsilon, gaussian_mu
from support.pages import ROOT


def test_the_price_of_looks_that_were_not_charged() -> None:
    page = (ROOT / "docs/evidence/index.md").read_text()
    rows = re.findall(r"^\| (\d) \| ([\d.]+) \| ([\d.]+) \| (\d) \|$", page, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [1, 2, 4, 8]
    median = gaussian_mu(0.1, 1e-5) ** 2
    for own, everybody, share, others in rows:
        run = gaussian_mu(float(own), 1e-5) ** 2
        assert float(everybody) == pytest.approx(gaussian_epsilon(math.sqrt(4 * run + median), 1e-5), abs=0.006)
        assert float(share) == pytest.approx(gaussian_epsilon(math.sqrt(3 * run + median), 1e-5), abs=0.006)
        assert own == others

"""Made-up data for the example task of deploy/node-image."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

CLINIC = Path(__file__).parents[2] / "deploy/node-image/clinic"
"""Where the example's package is; on `sys.path` before `write_visits`."""


def write_visits(path: Path, patients: range) -> Path:
    """Four visits of each patient; those who were here often come back. Returns `path`."""
    from clinic_task import CENTRE, COLUMNS, SCALE

    generator = np.random.default_rng([3, patients.start])
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for patient in patients:
            for _ in range(4):
                z = generator.normal(size=3)
                writer.writerow([f"P-{patient:04d}", *(z * SCALE + CENTRE), int(z @ [0.3, 0.5, 1.0] > 0)])
    return path

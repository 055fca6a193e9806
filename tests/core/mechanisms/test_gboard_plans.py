"""The README's headline: two committed plans, the same noise in the model, two fifths of the privacy cost."""

from pathlib import Path

import pytest

from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from support.refusals import coded

PLANS = Path(__file__).parents[3] / "deploy" / "plans"


def test_blt_gives_the_published_tree_run_the_same_noise_at_less_of_its_rho():
    text = (PLANS / "gboard-tree.toml").read_text()
    tree = cost_of(Plan.from_toml(text)).to_json()
    published = cost_of(Plan.from_toml(text + 'nodes = "all"\n')).to_json()
    blt = cost_of(Plan.from_toml((PLANS / "gboard-blt.toml").read_text())).to_json()
    # 79: the published node count (TF-Privacy's tree accountant, 2 000 rounds, 6 participations, 314 apart).
    assert published["sensitivity"] ** 2 == pytest.approx(79, rel=1e-12)
    assert published["rho_zcdp"] == pytest.approx(79 / 98, rel=1e-12)
    assert tree["sensitivity"] ** 2 == pytest.approx(70.30117314826, rel=1e-12)
    assert tree["sensitivity_bound"] == published["sensitivity_bound"] == blt["sensitivity_bound"] == "exact"
    assert tree["rho_zcdp"] == pytest.approx(0.7174, abs=1e-4)
    assert blt["rho_zcdp"] / tree["rho_zcdp"] == pytest.approx(0.3886, abs=1e-4)
    assert blt["rho_zcdp"] == pytest.approx(0.2788, abs=1e-4)
    assert blt["prefix_noise_rms"] == pytest.approx(tree["prefix_noise_rms"], rel=1e-4)
    assert blt["prefix_noise_max"] < tree["prefix_noise_max"]
    # Published epsilon at delta 1e-10 by a looser conversion: 8.90.
    assert published["epsilon_zcdp"] == pytest.approx(8.898, abs=1e-3)
    assert published["epsilon"] == pytest.approx(8.5260934, abs=1e-7)
    assert tree["epsilon"] == pytest.approx(7.9906776, abs=1e-7)
    assert blt["epsilon"] == pytest.approx(4.764, abs=1e-2)


def test_noise_in_a_prefix_sum_is_the_error_at_the_plans_own_multiplier():
    said = cost_of(Plan.from_toml((PLANS / "gboard-tree.toml").read_text())).to_json()
    scale = said["noise_multiplier"] / said["sensitivity"]
    assert said["prefix_noise_rms"] == pytest.approx(said["mean_error"] * scale, rel=1e-12)
    assert said["prefix_noise_max"] == pytest.approx(said["max_error"] * scale, rel=1e-12)


def test_a_tree_that_reads_every_node_cannot_be_charged_for_fewer():
    text = (PLANS / "gboard-tree.toml").read_text() + 'nodes = "read"\n'
    with pytest.raises(BadInput, check=coded("conflict", "mechanism.nodes")):
        cost_of(Plan.from_toml(text))

"""What every registered kind says about itself."""

from typing import ClassVar, Literal

import pytest

from fieldfare import mechanisms
from fieldfare.mechanisms import About, MechanismSpec
from support.refusals import coded


def test_every_kind_describes_itself_with_an_example_that_builds():
    for kind in mechanisms.kinds():
        about = mechanisms.describe(kind)
        assert all((about.source, about.memory, about.cost))
        assert about.example["kind"] == kind
        assert mechanisms.build(about.example, 64).rounds == 64


def test_describing_an_unknown_kind_names_the_nearest():
    with pytest.raises(ValueError, check=coded("kind-unknown", "bandde")):
        mechanisms.describe("bandde")


def test_a_spec_without_about_is_refused_at_registration():
    class Silent(MechanismSpec):
        kind: Literal["silent"] = "silent"

    with pytest.raises(TypeError, match="Silent needs an `about"):
        mechanisms.register(Silent)
    assert "silent" not in mechanisms.kinds()


def test_an_example_of_another_kind_is_refused():
    class Confused(MechanismSpec):
        about: ClassVar[About] = About("a paper", "0", "1 draw", False, False, {"kind": "independent"})
        kind: Literal["confused"] = "confused"

    with pytest.raises(TypeError, match="example is of kind 'confused'"):
        mechanisms.register(Confused)


def test_what_is_anytime_has_a_sensitivity_that_stops_growing():
    """One participation, 4 times as many rounds: an anytime kind's example needs less than 1 % more."""
    from fieldfare.participation import Single

    for kind in mechanisms.kinds():
        about = mechanisms.describe(kind)
        if about.anytime:
            example = dict(about.example, nu=0.01) if kind == "nu" else about.example
            short, long = (float(mechanisms.build(example, n).sensitivity(Single())) for n in (500, 2000))
            assert long <= 1.01 * short, kind

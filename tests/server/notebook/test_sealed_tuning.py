"""Sealed tuning: charged before it trains, K secret and of the law of its price, and losers found nowhere."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import fieldfare as ff
from fieldfare.accounting import sealed as theorem
from fieldfare.accounting.filter import RUN_SHARE
from fieldfare.accounting.sealed import draw, least_mu
from fieldfare.errors import BadInput, BudgetRefused, ChargedInVain
from fieldfare.plan import Plan
from fieldfare.text import up
from fieldfare_client import check, forked
from fieldfare_client.app import forget_users
from fieldfare_server.cli import sealed
from fieldfare_server.evidence.verify import verify
from fieldfare_server.files.plan_file import plan_text
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.tuning import Tuned, Tuning, Ways
from oracles import questions as oracle
from support.commands import command_in
from support.federation import TinyTask
from support.refusals import coded

RATES = {"server_optimizer.learning_rate": [0.1, 1.0, 4.0]}
pytestmark = pytest.mark.skipif(bool(forked.why_not()), reason="processes cannot be forked here")


class Spy(TinyTask):
    """Notes every model and score where only these tests look, and says them aloud in every way there is."""

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        score = super().evaluate(model)["r"]
        trial = os.getpid() != int(os.environ["SPY_PARENT"])
        if trial and "SPY_RISES" in os.environ:
            score = float(len(seen()))
        if trial and "SPY_FAILS" in os.environ:
            raise SystemExit(f"planted {score!r}")
        weight = next(model.parameters()).detach().numpy().tobytes()
        if trial:
            with Path(os.environ["SPY"]).open("a") as file:
                file.write(json.dumps([os.getpid(), score, weight.hex()]) + "\n")
            print(f"planted {score!r}")
            os.write(1, f"planted {score!r}\n".encode())
            logging.getLogger("fieldfare.client").error("planted %r", score)
        return {"r": score}


def seen() -> dict[int, tuple[float, str]]:
    """By process, in the order of the trials: the last score and weights of each."""
    lines = Path(os.environ["SPY"]).read_text().splitlines()
    return {pid: (score, weight) for pid, score, weight in map(json.loads, lines)}


def plan(**changes: Any) -> Plan:
    keys = {
        "task": "test_sealed_tuning:Spy",
        "population": "people",
        "epsilon": 4,
        "delta": 1e-5,
        "rounds": 2,
        "cohort": 12,
        "client": {"steps": 2},
        "participation": {"scheme": "min-separation", "separation": 1, "max_participations": 2},
    }
    return Plan(**{**keys, **changes})


@pytest.fixture(autouse=True)
def spied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "spy").touch()
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("SPY", str(tmp_path / "spy"))
    monkeypatch.setenv("SPY_PARENT", str(os.getpid()))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    for module in forked._OWN_THREADS:  # JAX, which another test may have loaded; no child here uses it
        monkeypatch.delitem(sys.modules, module, raising=False)
    # The check before the search scores in a child too, and the spy tells trials by their process.
    monkeypatch.setattr(check, "why_not", lambda: "scored here")
    yield
    forget_users()


def tune(home: Path, **keywords: Any) -> Tuned:
    tuned = ff.tune(plan(), RATES, **{"sealed": True, "ledger": home, "budget": 4, **keywords})
    assert isinstance(tuned, Tuned)
    return tuned


def open_ledger(home: Path) -> Ledger:
    return Ledger.open(f"sqlite:///{home / 'ledger.sqlite3'}")


def open_new(home: Path, epsilon: float, **more: Any) -> Ledger:
    ledger = Ledger.open(f"sqlite:///{home / 'ledger.sqlite3'}", create=True)
    ledger.create_population("people", epsilon, 1e-5, simulated=True, actor="officer", **more)
    return ledger


def kept(tmp_path: Path) -> bytes:
    """Every file that the search may have written: names and content of home and scratch."""
    files = [path for name in ("home", "scratch") for path in (tmp_path / name).rglob("*") if path.is_file()]
    return b"".join(path.name.encode() + path.read_bytes() for path in files)


def test_only_the_best_comes_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    tuned = tune(home)
    trials, (best,) = seen(), tuned.trials
    assert len(trials) == 3
    assert tuned.model is not None
    won = load_file(tuned.model)["0.weight"].numpy().tobytes().hex()
    weights = {weight: score for score, weight in trials.values()}
    assert best.score == weights[won]
    assert tuned.plan.server_optimizer.model_dump()["learning_rate"] == next(iter(best.values.values()))
    out, err = capfd.readouterr()
    with open_ledger(home) as ledger:
        told = [out, err, caplog.text, str(tuned), *map(str, ledger.events())]
        assert not ledger.runs().items
        assert verify(ledger, home).ok
    said, disk = "\n".join(told), kept(tmp_path)
    assert "planted" not in said
    assert bytes.fromhex(won) in disk
    losers = {weight: score for weight, score in weights.items() if weight != won}
    assert len(losers) == 2
    for weight, score in losers.items():
        assert bytes.fromhex(weight) not in disk
        assert repr(score)[:8] not in said
        assert repr(score)[:8].encode() not in disk
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == []


def test_the_charge_is_the_price_of_the_theorem_and_no_more_than_the_plans(tmp_path: Path) -> None:
    tuned = tune(tmp_path / "home", progress=False)
    with open_ledger(tmp_path / "home") as ledger:
        (charge,) = ledger.charges("people")
        people = ledger.population("people")
    mu = charge.loss["mu"]
    assert (charge.state, charge.loss["trials"]) == ("committed", 3)
    assert charge.price.mu_squared == least_mu(mu, 3, RUN_SHARE * people.leak) ** 2
    assert ff.price(tuned.plan).loss.mu <= mu < charge.price.mu
    whole = ff.price(plan()).loss.mu
    assert 0.99 * whole < charge.price.mu <= whole
    assert people.spent.mu_squared == charge.price.mu_squared
    # A second search is a second charge, for which this budget has no room; then nothing is trained.
    before = len(seen())
    with pytest.raises(BudgetRefused):
        tune(tmp_path / "home", progress=False)
    assert len(seen()) == before


def test_the_epsilon_that_is_said_has_the_leak_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a population with a leak the search takes a quarter of it, beside mu."""
    with open_new(tmp_path / "home", 6.0, leak=8e-6):
        pass
    tuned = tune(tmp_path / "home", budget=None)
    with open_ledger(tmp_path / "home") as ledger:
        (charge,) = ledger.charges("people")
    mu, leak, said = charge.price.mu, charge.price.leak, tuned.trials[0].epsilon
    assert leak == 2e-6
    assert leak + (1 - leak) * oracle.delta(mu, said) <= 1e-5 * (1 + 1e-9)
    assert leak + (1 - leak) * oracle.delta(mu, 0.999 * said) > 1e-5
    assert f"charged epsilon {up(said):g}" in capsys.readouterr().err


def test_a_search_over_prices_is_offered_at_the_dearest_and_charged_no_more(tmp_path: Path) -> None:
    noisy = plan(epsilon=None, noise_multiplier=4, participation={"scheme": "min-separation", "separation": 1})
    keys: dict[str, Any] = {"sealed": True, "ledger": tmp_path / "home", "budget": 4, "progress": False}
    over = {"run.rounds": [1, 4, 2]}
    offer = ff.tune(noisy, over, dry_run=True, **keys)
    assert isinstance(offer, Ways)
    dearest = ff.price(noisy.model_copy(update={"run": noisy.run.model_copy(update={"rounds": 4})}))
    assert offer.epsilon == offer.ways[-1].tuning_users_pay == pytest.approx(dearest.epsilon, rel=1e-9)
    ff.tune(noisy, over, **keys)
    with open_ledger(tmp_path / "home") as ledger:
        (charge,) = ledger.charges("people")
    assert 0.99 * dearest.loss.mu < charge.price.mu <= dearest.loss.mu


def test_a_dry_run_refuses_what_the_charge_would(tmp_path: Path) -> None:
    """It asked whether one trial fits."""
    with open_new(tmp_path / "home", 3.9):  # one trial takes less, the search epsilon 4
        assert Tuning.of(plan(), RATES, sealed=True).offer().ways[-1].dearest_trial < 3.9
    for dry_run in (True, False):
        with pytest.raises(BudgetRefused, match="a charge of mu"):
            tune(tmp_path / "home", dry_run=dry_run, budget=None)
    with open_ledger(tmp_path / "home") as ledger:
        assert not ledger.charges("people")
        assert not ledger.runs().items
    assert not seen()


@pytest.mark.parametrize("counted", [1, 2, 3])
def test_all_are_made_and_the_first_k_count(counted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPY_RISES", "1")
    monkeypatch.setattr(sealed, "draw", lambda trials: counted)
    tuned = tune(tmp_path / "home", progress=False)
    scores = [score for score, _ in seen().values()]
    assert len(scores) == 3
    assert tuned.trials[0].score == scores[counted - 1] == max(scores[:counted])


@pytest.mark.parametrize("trials", [2, 3, 8])
def test_k_has_exactly_the_law_of_the_price(trials: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(theorem.secrets, "randbelow", lambda below: asked.append(below) or 0)
    assert draw(trials) == 1
    counts: Counter[int] = Counter()
    for place in range(asked[0]):
        monkeypatch.setattr(theorem.secrets, "randbelow", lambda below, place=place: place)
        counts[draw(trials)] += 1
    whole = sum(Fraction(1, k) for k in range(1, trials + 1))
    assert {k: Fraction(count, asked[0]) for k, count in counts.items()} == {
        k: Fraction(1, k) / whole for k in range(1, trials + 1)
    }


KILLED = """
import os, sys
sys.path[:0] = {path}
os.environ["SPY_PARENT"] = str(os.getpid())
from fieldfare_server.cli import sealed
sealed._train = lambda plan, cost, tell: os.kill(os.getppid(), 9)  # before anything is trained
from test_sealed_tuning import tune
from pathlib import Path
tune(Path({home!r}), progress=False)
"""


def test_killed_in_its_first_trial_it_is_charged_and_keeps_nothing(tmp_path: Path) -> None:
    here = Path(__file__).parent
    source = KILLED.format(path=[str(here), str(here.parents[1])], home=str(tmp_path / "home"))
    environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with open_ledger(tmp_path / "home") as ledger:
        assert [charge.state for charge in ledger.charges("people")] == ["committed"]
        assert verify(ledger, tmp_path / "home").ok
        assert not ledger.runs().items
    assert not list((tmp_path / "home").rglob("*.safetensors"))
    assert not list((tmp_path / "scratch").iterdir())


def test_where_all_fail_it_says_one_thing_and_stays_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPY_FAILS", "1")
    with pytest.raises(ChargedInVain, match="stays charged") as refused:
        tune(tmp_path / "home", progress=False)
    assert refused.value.exit_status == 5  # 4 says that it can be resumed
    assert refused.value.__context__ is None
    assert "planted" not in str(refused.value) + "".join(capfd.readouterr())
    with open_ledger(tmp_path / "home") as ledger:
        assert [charge.state for charge in ledger.charges("people")] == ["committed"]


def test_a_trial_whose_users_all_fail_goes_on_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The price is of post-processings of what is released: a trial that ended there would say so beside it."""
    monkeypatch.setattr(sealed, "draw", lambda trials: 2)
    monkeypatch.setattr(sealed.secrets, "randbelow", lambda below: 1)
    tuned = ff.tune(
        plan(), {"client.learning_rate": [0.1, 1e30]}, sealed=True, ledger=tmp_path / "home", budget=4, progress=False
    )
    assert isinstance(tuned, Tuned)
    assert len(seen()) == 2
    assert tuned.trials[0].values == {"client.learning_rate": 1e30}
    assert tuned.model is not None
    start, weights = next(Spy().build_model().parameters()).detach(), next(iter(load_file(tuned.model).values()))
    assert bool(weights.isfinite().all())
    assert not torch.equal(weights, start), "it is noise"


SAMPLED = {"adjacency": "add_remove", "participation": {"scheme": "poisson", "rate": 0.5}, "mechanism": "independent"}
UNSEALED: dict[str, tuple[dict[str, Any], str]] = {
    "who is there is secret": (SAMPLED, "add_remove"),
    "nodes see losers": ({"aggregation": {"kind": "masked"}}, "masked"),
    "losers can be made again": ({"noise_seed": 3}, "noise_seed"),
    "mu does not say it all": ({"rounding": "discrete", "mechanism": "independent"}, "noise or sampler"),
}


@pytest.mark.parametrize(("changes", "named"), UNSEALED.values(), ids=UNSEALED.keys())
def test_what_cannot_stay_sealed_is_refused(changes: dict[str, Any], named: str) -> None:
    tuning = Tuning.of(plan(**changes), RATES, sealed=True)
    with pytest.raises(BadInput, check=coded("unsupported", named)):
        tuning.sealed()
    with pytest.raises(BadInput, check=coded("unsupported", named)):  # nor are they offered: mu says nothing there
        ff.tune(plan(**changes), RATES, sealed=True, dry_run=True)


@pytest.mark.parametrize("keys", [{"share": 0.2}, {"score": "correct"}])
def test_a_share_and_a_charged_score_are_not_sealed(keys: dict[str, Any]) -> None:
    with pytest.raises(BadInput, check=coded("conflict", "sealed trials")):
        Tuning.of(plan(), RATES, sealed=True, **keys)
    with pytest.raises(BadInput, check=coded("conflict", "sealed trials")):
        Tuning.of(plan(tuning=0.4), RATES, sealed=True)


def test_another_adjacency_than_the_populations_is_refused_before_a_charge(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with open_new(home, 4, adjacency="replace_one"):
        pass
    with pytest.raises(BadInput, check=coded("differs", "zero_out")):
        tune(home, progress=False, budget=None)
    with open_ledger(home) as ledger:
        assert not ledger.charges("people")


def test_the_command_writes_model_and_plan_of_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fieldfare = command_in(tmp_path, monkeypatch)
    Path("plan.toml").write_text(plan_text(plan()))
    assert (
        fieldfare(*["population", "create", "people", "--epsilon", "4", "--delta", "1e-5", "--simulated"]).exit_code
        == 0
    )
    over = ["tune", "--sealed", "--over", "server_optimizer.learning_rate=.1,1"]
    said = fieldfare(*over, "--dry-run")
    assert said.exit_code == 0, said.output
    assert not seen()
    said = fieldfare(*over, "--json")
    assert said.exit_code == 0, said.output
    shown = json.loads(said.stdout)
    assert sorted(shown) == ["model", "plan", "trials"]
    assert len(shown["trials"]) == 1
    assert Path(shown["model"]).exists()
    assert Plan.from_toml(Path("tuned.toml").read_text()).tuning is None

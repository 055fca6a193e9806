"""Flower's own differential privacy, charged to a population's budget: `ff.LedgerAccountant`.

Flower 1.41 asks a `PrivacyAccountant` before each round (`would_exceed`) and tells it after (`compose`). This
one reserves the round's loss in the ledger when it is asked, durably, so that nothing is released that is not
charged, and commits it when it is told. Two trainers that ask at the same time cannot overspend, and a
trainer that dies in between stays charged. Every accountant has keys that no other has, so a training that is
started again, from its beginning, from a checkpoint or in a forked process, pays for all that it releases
again.

    base, accountant = FedAvg(fraction_evaluate=0.0), ff.LedgerAccountant(...)
    strategy = DifferentialPrivacyServerSideFixedClipping(base, 1.0, 2.0, 20, accountant=accountant)

| Flower's sampling | charged for each round |
|---|---|
| no amplification | mu = 1 / noise multiplier; refused under `add_remove` |
| Poisson | the same without amplification, but under `add_remove` with `rounds`: all rounds at once, amplified |
| without replacement (replace one) | mu = 2 / noise multiplier: no amplification is claimed, and two updates change |
"""

from __future__ import annotations

import os
import secrets
import threading
from typing import TYPE_CHECKING, Any, NoReturn

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import BudgetRefused, Differs, FieldfareError, NotGiven, Unsupported, WrongForm
from fieldfare.participation import Adjacency, adjacency_factor, hides_presence
from fieldfare.shown import Shown

if TYPE_CHECKING:  # flwr is loaded when an accountant is made, not when this module is named
    from flwr.serverapp import GaussianPrivacyEvent, PrivacyConfig, PrivacySpent

_FORMAT = 1
_LONGEST_NAME = 60


class LedgerAccountant(metaclass=Shown):
    """Flower's `PrivacyAccountant`, kept by a Fieldfare ledger. Give it to Flower's DP strategies.

    Guarantee: the models that the strategy releases are within the population's (epsilon, delta), together
    with all runs and other charges, if the noise is what the strategy says: Flower clips and adds it. Its
    averages of clients' metrics, of training and evaluation, have no noise and are **not accounted**.

    Example:
        >>> import fieldfare as ff
        >>> from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, SamplingMethod
        >>> ledger = ff.Ledger.open("sqlite:///ledger.sqlite3", create=True)
        >>> made = ledger.create_population("people", 8, 1e-5, actor="ann")
        >>> one, nobody = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
        >>> config = PrivacyConfig(1e-5, 100, one, nobody, max_epsilon=8.0)
        >>> accountant = ff.LedgerAccountant(ledger, "people", "ranker", config=config, adjacency="zero_out")
        >>> event = GaussianPrivacyEvent(2.0, 20, 100)
        >>> accountant.would_exceed(event)
        False
        >>> accountant.compose(event)
        >>> f"{accountant.get_epsilon(1e-5):.2f}", accountant.get_delta(8) < 1e-5, accountant.num_releases
        ('1.99', True, 1)
        >>> saved = accountant.state_dict()
        >>> accountant.load_state_dict(saved)
        >>> spent = accountant.get_privacy_spent()
    """

    SHOWN = ("__init__", "get_privacy_spent", "state_dict", "load_state_dict")

    def __init__(
        self,
        charger: Any,
        population: str,
        name: str,
        *,
        config: PrivacyConfig,
        adjacency: Adjacency,
        rounds: int | None = None,
        why: str = "training with Flower's differential privacy",
    ) -> None:
        """
        Args:
            charger: a `fieldfare_server.ledger.Ledger`, or a `fieldfare_server.api.http_client.Client` with a
                token of scope charge.
            population: whose budget is charged.
            name: of this training, for the journal, at most 60 characters.
            config: Flower's. `max_epsilon` must be set: without it Flower never asks before a round.
            adjacency: the population's, which refuses another.
            rounds: the training's rounds, where all are to be charged at once, also if it is stopped or
                started again.

        Raises:
            BadInput: a configuration that does not stop, or that is for another relation than the budget; under
                `add_remove` one that samples otherwise than by coins.
        """
        if not 0 < len(name) <= _LONGEST_NAME:
            raise WrongForm(f"name {name[:80]!r}", f"a training's name is 1 to {_LONGEST_NAME} characters.", "ranker")
        if config.max_epsilon is None:
            raise NotGiven("max_epsilon = None", "Flower would never ask before a round.", "the population's epsilon")
        relation = config.neighboring_relation.value
        if (relation == "replace-one") != (adjacency == "replace_one"):
            raise Differs(
                f"neighboring_relation = {relation!r}",
                f"the budget of population {population!r} is for {adjacency!r}.",
                "add-or-remove-one" if adjacency != "replace_one" else "replace-one",
            )
        if hides_presence(adjacency) and config.sampling_method.value != "poisson":
            # Flower fills a sample of a fixed size, and trains nobody where it cannot.
            why = "a missing user's place goes to another one: two updates change, and who is there decides a round."
            raise Unsupported(f"sampling_method = {config.sampling_method.value!r}", why, "a 'zero_out' population")
        self._charger, self._population, self._name, self._why = charger, population, name, why
        self._config, self._adjacency, self._rounds = config, adjacency, rounds
        # (noise multiplier, sample size, population size) of every composed release.
        self._events: list[tuple[float, int, int]] = []
        self._begin()

    def _begin(self) -> None:
        """Pay for what follows under a key of its own: nothing that was paid before pays for it."""
        self._key = f"{self._name}-{secrets.token_hex(8)}"
        # With `rounds`: of each release that the one charge has paid for; it is committed with the first.
        self._paid: tuple[float, int, int] | None = None
        self._process, self._one_at_a_time = os.getpid(), threading.Lock()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a LedgerAccountant pays for one training, and cannot be copied or pickled; make another")

    def _forked(self) -> None:
        """Begin anew in another process: what the first one paid stays its own, as its lock does."""
        if self._process != os.getpid():
            self._begin()

    @property
    def config(self) -> PrivacyConfig:
        """Flower's configuration."""
        return self._config

    @property
    def num_releases(self) -> int:
        """How many releases were composed."""
        return len(self._events)

    def would_exceed(self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1) -> bool:
        """Reserve the next `count` releases; True where the budget, or `max_epsilon` for this training,
        refuses them.

        Asking again for the same releases reserves nothing more.
        """
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        after = [*self._events, *[_facts(event)] * count]
        if limit is not None and self._loss(after).epsilon(self._config.target_delta) > limit:
            return True
        try:
            self._reserve(event, count)
        except FieldfareError as error:
            if error.exit_status == BudgetRefused.exit_status:  # over HTTP it is another class
                return True
            raise
        return False

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Charge `count` releases for good. Raises `BudgetRefused` where they were not reserved and do not fit."""
        self._forked()
        with self._one_at_a_time:
            for key in self._reserve(event, count):
                self._charger.commit_charge(self._population, key, actor=self._name)
            if self._rounds is not None:
                self._paid = _facts(event)
            self._events += [_facts(event)] * count

    def get_epsilon(self, delta: float) -> float:
        """Return epsilon of this training's releases at `delta`, by themselves."""
        return self._loss(self._events).epsilon(delta) if self._events else 0.0

    def get_delta(self, epsilon: float) -> float:
        """Return delta of this training's releases at `epsilon`, by themselves."""
        return self._loss(self._events).delta(epsilon) if self._events else 0.0

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """Return what this training has spent, by itself. The ledger shows what the population has."""
        from flwr.serverapp import PrivacySpent

        at = self._config.target_delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(at), at, self.num_releases, "gaussian", None)

    def state_dict(self) -> dict[str, object]:
        """Return what a training that is continued gives to `load_state_dict`."""
        return {"format": _FORMAT, "name": self._name, "events": [list(event) for event in self._events]}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Count what was released before; what is released from here on is paid anew, also by this very
        object.

        Raises `BadInput` for the state of another training.
        """
        events = state.get("events")
        if state.get("format") != _FORMAT or state.get("name") != self._name or not isinstance(events, list):
            raise Differs("the accountant's state", f"it is not that of training {self._name!r}.")
        self._events = [(float(z), int(n), int(m)) for z, n, m in events]
        self._begin()

    def _reserve(self, event: GaussianPrivacyEvent, count: int) -> list[str]:
        """Reserve what the next `count` releases cost beyond what is paid; the charges' keys."""
        self._forked()
        charges = self._charges(event, count)
        for key, loss in charges:
            self._charger.reserve_charge(
                self._population, key, loss, what=f"Flower training {self._name}", why=self._why, actor=self._name
            )
        return [key for key, _ in charges]

    def _charges(self, event: GaussianPrivacyEvent, count: int) -> list[tuple[str, Foreign]]:
        if self._rounds is None:
            numbers = range(self.num_releases, self.num_releases + count)
            return [(f"{self._key}-{number}", self._priced(event, 1)) for number in numbers]
        if self.num_releases + count > self._rounds:
            raise BudgetRefused(
                f"release {self.num_releases + count} of training {self._name!r}",
                f"it was charged for {self._rounds} rounds.",
                "another name for another training",
            )
        if self._paid is None:
            return [(self._key, self._priced(event, self._rounds))]
        if self._paid != _facts(event):
            raise Differs(
                f"release {self.num_releases + 1} of training {self._name!r}",
                f"its noise multiplier, sample and population are {_facts(event)}, and {self._paid} were charged.",
                "the same in every round, or no rounds=",
            )
        return []

    def _priced(self, event: GaussianPrivacyEvent, steps: int) -> Foreign:
        if self._config.sampling_method.value == "poisson" and hides_presence(self._adjacency):
            rate = event.sample_size / event.population_size
            said = {"rate": rate, "noise_multiplier": event.noise_multiplier, "steps": steps}
        else:
            said = {"mu": adjacency_factor(self._adjacency) * steps**0.5 / event.noise_multiplier * (1 + 1e-15)}
        return Foreign.of({**said, "adjacency": self._adjacency})

    def _loss(self, events: list[tuple[float, int, int]]) -> PrivacyLoss:
        """Return the loss of these releases alone, without amplification: the most that is claimed while the
        run goes on.
        """
        return PrivacyLoss(sum((adjacency_factor(self._adjacency) / z) ** 2 for z, _, _ in events))


def _facts(event: GaussianPrivacyEvent) -> tuple[float, int, int]:
    return (event.noise_multiplier, event.sample_size, event.population_size)

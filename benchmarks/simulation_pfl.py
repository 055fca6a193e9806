"""The same round in pfl-research: `python simulation_pfl.py MODEL COHORT`, in the environment that `ENVIRONMENT` makes.

Its whole round: users are sampled, trained, clipped, summed, given its central Gaussian noise, stepped. It keeps no
account over rounds and stores nothing.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

from simulation_models import BATCH, CLIP, NOISE, POPULATION, RATE, ROWS, columns, example_loss, largest, make
from simulation_turns import Turnstile

ENVIRONMENT = "python -m venv pfl-venv && pfl-venv/bin/pip install pfl==0.6.0 torch==2.13.0 numpy"
"""pfl 0.6.0 wants an older dp-accounting than Fieldfare."""


class Turns(TrainingProcessCallback):
    """Passes the turnstile before every round."""

    def __init__(self) -> None:
        self._turnstile = Turnstile()

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self._turnstile.enter()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):  # type: ignore[no-untyped-def]
        return not self._turnstile.enter(), Metrics()


def main(name: str, cohort: int) -> None:
    torch.set_num_threads(1)
    network, count = make(name), POPULATION * cohort
    network.loss = lambda x, y: example_loss(network(x), y).mean()  # type: ignore[assignment]
    network.metrics = lambda x, y: {}  # type: ignore[assignment]
    rows = {key: torch.from_numpy(values) for key, values in columns(name, count).items()}
    users = [
        Dataset([rows["x"][u * ROWS : (u + 1) * ROWS], rows["y"][u * ROWS : (u + 1) * ROWS]], user_id=str(u))
        for u in range(count)
    ]
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0))
    data = FederatedDataset(lambda user: users[user], get_user_sampler("minimize_reuse", np.arange(count)))
    private = CentrallyAppliedPrivacyMechanism(GaussianMechanism(CLIP, NOISE))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10**9, evaluation_frequency=10**9, train_cohort_size=cohort, val_cohort_size=None
        ),
        SimulatedBackend(data, data, [private]),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
        callbacks=[Turns()],
    )
    print(largest(network.parameters()))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""The same round in pfl-research: `python simulation_pfl.py MODEL`, in an environment of its own (see `ENVIRONMENT`).

Trains a round for every line on standard input and answers with the CPU seconds and the wall seconds that it took, so
that rounds of several systems can be taken in turn.
"""

from __future__ import annotations

import sys
import time

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
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism, NormClippingOnly

from simulation_models import BATCH, CLIP, RATE, ROWS, USERS, columns, example_loss, make

ENVIRONMENT = "python -m venv pfl-venv && pfl-venv/bin/pip install pfl==0.6.0 torch==2.13.0 numpy"
"""pfl 0.6.0 wants an older dp-accounting than Fieldfare."""


class Turns(TrainingProcessCallback):
    """Waits for a line before every round, answers after it."""

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self._wait()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):  # type: ignore[no-untyped-def]
        cpu, wall = time.process_time() - self.cpu, time.perf_counter() - self.wall
        print(f"round {cpu} {wall}", flush=True)
        return self._wait(), Metrics()

    def _wait(self) -> bool:
        ended = not sys.stdin.readline()
        self.cpu, self.wall = time.process_time(), time.perf_counter()
        return ended


def main(name: str) -> None:
    torch.set_num_threads(1)
    network = make(name)
    network.loss = lambda x, y: example_loss(network(x), y).mean()  # type: ignore[assignment]
    network.metrics = lambda x, y: {}  # type: ignore[assignment]
    rows = {key: torch.from_numpy(values) for key, values in columns(name).items()}
    users = [
        Dataset([rows["x"][u * ROWS : (u + 1) * ROWS], rows["y"][u * ROWS : (u + 1) * ROWS]], user_id=str(u))
        for u in range(USERS)
    ]
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0))
    data = FederatedDataset(lambda user: users[user], get_user_sampler("minimize_reuse", np.arange(USERS)))
    clip = CentrallyAppliedPrivacyMechanism(NormClippingOnly(2.0, CLIP))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10**9, evaluation_frequency=10**9, train_cohort_size=USERS, val_cohort_size=None
        ),
        SimulatedBackend(data, data, [clip]),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
        callbacks=[Turns()],
    )


if __name__ == "__main__":
    main(sys.argv[1])

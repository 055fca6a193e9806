"""numpy_quickstart: A Flower / NumPy app."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from numpy_quickstart.task import get_dummy_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    num_rounds: int = context.run_config["num-server-rounds"]
    model = get_dummy_model()
    arrays = ArrayRecord(numpy_ndarrays=[model])
    strategy = FedAvg(fraction_evaluate=0.0)
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=num_rounds)
    ndarrays = result.arrays.to_numpy_ndarrays()
    np.savez(context.run_config["out"], *ndarrays)

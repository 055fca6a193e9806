"""jax_quickstart: A Flower / JAX app."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from jax_quickstart.task import get_params, load_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    params = load_model((3,))
    arrays = ArrayRecord([np.array(value) for value in get_params(params)])
    strategy = FedAvg(fraction_evaluate=0.0)
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=context.run_config["num-server-rounds"])
    np.savez(context.run_config["out"], *result.arrays.to_numpy_ndarrays())

"""sklearn_logreg: A Flower / scikit-learn app."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn_logreg.task import create_log_reg_and_instantiate_parameters, get_model_parameters

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    model = create_log_reg_and_instantiate_parameters(context.run_config["penalty"])
    arrays = ArrayRecord(get_model_parameters(model))
    strategy = FedAvg(fraction_evaluate=0.0)
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=context.run_config["num-server-rounds"])
    np.savez(context.run_config["out"], *result.arrays.to_numpy_ndarrays())

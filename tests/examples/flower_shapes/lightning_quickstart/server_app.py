"""lightning_quickstart: A Flower / PyTorch Lightning app."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from lightning_quickstart.task import LitAutoEncoder

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    model = LitAutoEncoder()
    strategy = FedAvg(fraction_evaluate=0.0)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model.state_dict()),
        num_rounds=context.run_config["num-server-rounds"],
    )
    torch.save(result.arrays.to_torch_state_dict(), context.run_config["out"])

"""The ServerApp: FedAvg, and an evaluation on digits that no node has."""

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
import fieldfare as ff
from quickstart.task import Net, accuracy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = ff.PrivateStrategy(epsilon=8, delta=1e-4, cohort=50, clip=2.0, population="writers", budget=16)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=int(context.run_config["num-server-rounds"]),
        train_config=ConfigRecord({"lr": float(context.run_config["lr"])}),
        evaluate_fn=evaluate,
    )
    print(f"held-out accuracy: {result.evaluate_metrics_serverapp}")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": accuracy(net)})

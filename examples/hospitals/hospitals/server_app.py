"""The ServerApp: the patients of all hospitals share one budget."""

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

import fieldfare as ff
from hospitals.task import Net, accuracy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    if plan := str(context.run_config["plan"]):  # a file: masked sums, docs/masked-sums.md
        strategy = ff.PrivateStrategy(dialect="cohort", plan=plan)
    else:
        strategy = ff.PrivateStrategy(
            dialect="cohort",
            epsilon=4,
            delta=1e-4,
            cohort=100,
            clip=0.2,
            mechanism="blt",
            participation={"scheme": "min-separation", "separation": 4},
            population="patients",
            budget=8,
        )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=int(context.run_config["num-server-rounds"]),
        train_config=ConfigRecord({"lr": float(context.run_config["lr"])}),
        evaluate_fn=evaluate,
    )
    print(f"{strategy.privacy_spent()}; held-out accuracy: {result.evaluate_metrics_serverapp}")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": accuracy(net)})

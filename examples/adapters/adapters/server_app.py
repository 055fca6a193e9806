"""The ServerApp: what travels is what `get_peft_model_state_dict` gives, by peft's own names."""

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from peft import get_peft_model_state_dict, set_peft_model_state_dict

import fieldfare as ff
from adapters.task import accuracy, make_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = ff.PrivateStrategy(epsilon=8, delta=1e-4, cohort=10, clip=0.5, population="readers", budget=16)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_peft_model_state_dict(make_model())),
        num_rounds=int(context.run_config["num-server-rounds"]),
        train_config=ConfigRecord({"lr": float(context.run_config["lr"])}),
        evaluate_fn=evaluate,
    )
    print(f"{strategy.privacy_spent()}; held-out accuracy: {result.evaluate_metrics_serverapp}")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    model = make_model()
    set_peft_model_state_dict(model, arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": accuracy(model)})

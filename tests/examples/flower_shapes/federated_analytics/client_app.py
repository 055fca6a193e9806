"""federated_analytics: A Flower / Federated Analytics app."""

import pandas as pd
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_diabetes

app = ClientApp()


def query_database(partition_id: int, num_partitions: int, features: list[str]):
    """Stands for the example's PostgreSQL query over patients."""
    patients = load_diabetes(scaled=False)
    table = pd.DataFrame(patients.data, columns=patients.feature_names)
    return table[features].iloc[partition_id::num_partitions]


@app.query()
def query(msg: Message, context: Context):
    """Query the database and report the requested statistics to `ServerApp`."""
    features = list(msg.content["config"]["features"])
    df = query_database(context.node_config["partition-id"], context.node_config["num-partitions"], features)
    metrics = {}
    for feature in features:
        metrics[f"{feature}_sum"] = float(df[feature].sum())
        metrics[f"{feature}_count"] = len(df)
    reply_content = RecordDict({"query_results": MetricRecord(metrics)})
    return Message(reply_content, reply_to=msg)

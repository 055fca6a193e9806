"""pandas_histogram: A Flower / Pandas app."""

import warnings

import numpy as np
import pandas as pd
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_iris

warnings.filterwarnings("ignore", category=UserWarning)

app = ClientApp()


def get_clientapp_dataset(partition_id: int, num_partitions: int):
    """Stands for the example's federated data set."""
    rows = pd.DataFrame(load_iris().data[:, :2], columns=["SepalLengthCm", "SepalWidthCm"])
    return rows.iloc[partition_id::num_partitions]


@app.query()
def query(msg: Message, context: Context):
    """Construct histogram of local dataset and report to `ServerApp`."""
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    dataset = get_clientapp_dataset(partition_id, num_partitions)
    metrics = {}
    for feature_name in ["SepalLengthCm", "SepalWidthCm"]:
        freqs, _ = np.histogram(dataset[feature_name], bins=np.linspace(2.0, 10.0, 10))
        metrics[feature_name] = freqs.tolist()
    metrics["num-examples"] = len(dataset)
    reply_content = RecordDict({"query_results": MetricRecord(metrics)})
    return Message(reply_content, reply_to=msg)

"""numpy_quickstart: A Flower / NumPy app."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    ndarrays = msg.content["arrays"].to_numpy_ndarrays()
    model = ndarrays[0] + np.random.rand(1, 1) * 0.1
    metrics = {"random_metric": float(np.random.rand()), "num-examples": 1}
    content = RecordDict({"arrays": ArrayRecord([model]), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)

"""jax_quickstart: A Flower / JAX app."""

import jax
import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from jax_quickstart.task import get_params, load_data, load_model, loss_fn, set_params
from jax_quickstart.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    x, y = load_data(context.node_config["partition-id"])
    params = load_model((x.shape[1],))
    set_params(params, msg.content["arrays"].to_numpy_ndarrays())
    params, loss, num_examples = train_fn(params, jax.grad(loss_fn), x, y)
    arrays = ArrayRecord([np.array(value) for value in get_params(params)])
    metrics = MetricRecord({"train_loss": float(loss), "num-examples": num_examples})
    return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)

"""sklearn_logreg: A Flower / scikit-learn app."""

import warnings

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn_logreg.task import (
    create_log_reg_and_instantiate_parameters,
    digits,
    get_model_parameters,
    set_model_params,
)

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    model = create_log_reg_and_instantiate_parameters(context.run_config["penalty"])
    set_model_params(model, msg.content["arrays"].to_numpy_ndarrays())
    x_train, y_train = digits(context.node_config["partition-id"], context.node_config["num-partitions"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x_train, y_train)
    metrics = MetricRecord({"num-examples": len(x_train)})
    content = RecordDict({"arrays": ArrayRecord(get_model_parameters(model)), "metrics": metrics})
    return Message(content=content, reply_to=msg)

"""tabular: A Flower / PyTorch app over a table."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from tabular.task import IncomeClassifier, load_data
from tabular.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    net = IncomeClassifier()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    train_loader, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    train_fn(net, train_loader)
    metrics = MetricRecord({"num-examples": len(train_loader)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=msg)

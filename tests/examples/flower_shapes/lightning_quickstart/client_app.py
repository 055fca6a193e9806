"""lightning_quickstart: A Flower / PyTorch Lightning app."""

import lightning as pl
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from lightning_quickstart.task import LitAutoEncoder, load_data

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    model = LitAutoEncoder()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    train_loader, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    trainer = pl.Trainer(
        max_epochs=context.run_config["local-epochs"],
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(model=model, train_dataloaders=train_loader)
    metrics = MetricRecord({"train_loss": float(trainer.callback_metrics["train_loss"]), "num-examples": 1})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=msg)

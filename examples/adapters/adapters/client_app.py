"""The ClientApp: one person a node. It knows nothing of privacy."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from peft import get_peft_model_state_dict, set_peft_model_state_dict

from adapters.task import make_model, sentences

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    model = make_model()
    set_peft_model_state_dict(model, message.content["arrays"].to_torch_state_dict())
    batch = sentences(int(context.node_config["partition-id"]), 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(message.content["config"]["lr"]))
    model.train()
    for _ in range(4 * int(context.run_config["local-epochs"])):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    arrays = ArrayRecord(get_peft_model_state_dict(model))
    metrics = MetricRecord({"num-examples": len(batch["labels"])})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

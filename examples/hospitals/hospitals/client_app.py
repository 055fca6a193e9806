"""A hospital's ClientApp: whose patients it has, and how one of them trains. Fieldfare clips and sums."""

import torch
from flwr.app import Context
from flwr.clientapp import ClientApp

import fieldfare as ff
from hospitals.task import Net, patients_of, record_of

app = ClientApp()


@app.query("users")
@ff.private.users
def users(context: Context) -> list[str]:
    return patients_of(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))


@app.train()
@ff.private.train(Net)
def train(model: torch.nn.Module, user: str, context: Context, config: dict) -> None:
    # Everything that changes is made here: one patient's optimizer must not see another patient.
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    x, y = record_of(user)
    for _ in range(int(context.run_config["local-steps"])):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(x), y).backward()
        optimizer.step()

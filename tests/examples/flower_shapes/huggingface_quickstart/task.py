"""A sequence classifier; random weights stand for the published ones."""

import torch
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, BertConfig


def get_model():
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForSequenceClassification.from_config(config)


def load_data(partition_id: int, num_partitions: int):
    generator = torch.Generator().manual_seed(partition_id)
    rows = torch.randint(1, 50, (24, 8), generator=generator)
    mask = torch.ones(8, dtype=torch.long)
    data = [{"input_ids": row, "attention_mask": mask, "labels": (row[0] > 25).long()} for row in rows]
    return DataLoader(data, shuffle=True, batch_size=8)


def train(net, trainloader, epochs, device):
    optimizer = AdamW(net.parameters(), lr=5e-5)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for batch in trainloader:
            batch = {k: v.to(device) for k, v in batch.items()}
            loss = net(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
    return total / len(trainloader)

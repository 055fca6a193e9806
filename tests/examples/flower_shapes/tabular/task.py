"""Rows of a table."""

import torch
import torch.nn as nn
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, TensorDataset


class IncomeClassifier(nn.Module):
    def __init__(self, input_dim: int = 30):
        super().__init__()
        self.layer1 = nn.Linear(input_dim, 128)
        self.layer2 = nn.Linear(128, 64)
        self.output = nn.Linear(64, 1)
        self.relu = nn.ReLU()
        self.sigmoid = nn.Sigmoid()

    def forward(self, x):
        x = self.relu(self.layer1(x))
        x = self.relu(self.layer2(x))
        return self.sigmoid(self.output(x))


def load_data(partition_id: int, num_partitions: int):
    features, labels = load_breast_cancer(return_X_y=True)
    mine = slice(partition_id, None, num_partitions)
    x = torch.tensor(StandardScaler().fit_transform(features)[mine], dtype=torch.float32)
    y = torch.tensor(labels[mine], dtype=torch.float32).view(-1, 1)
    return DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True), DataLoader(TensorDataset(x, y), batch_size=16)


def train(model, train_loader, num_epochs=1):
    criterion = nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    model.train()
    for _ in range(num_epochs):
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()

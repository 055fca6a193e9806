"""An autoencoder."""

import lightning as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def digits(partition: int, partitions: int = 10) -> tuple:
    """Stands for the example's data set; the last 297 digits are the server's."""
    images, labels = load_digits(return_X_y=True)
    mine = slice(1500, None) if partition < 0 else slice(partition, 1500, partitions)
    return (images[mine] / 16).astype("float32"), labels[mine]


class LitAutoEncoder(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 64))

    def forward(self, x):
        return self.encoder(x)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

    def training_step(self, batch, batch_idx):
        x, _ = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss


def load_data(partition_id: int, num_partitions: int):
    x, y = digits(partition_id, num_partitions)
    dataset = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    return DataLoader(dataset, batch_size=32, shuffle=True), DataLoader(dataset, batch_size=32)

"""The model of StackOverflow's next words, in a file of its own: whoever prices a plan of it imports no PyTorch."""

from __future__ import annotations

import torch
from torch import nn


class NextWord(nn.Module):
    """Embedding 96, LSTM 670, linear 96, linear: 4 050 748 trained parameters. One of torch's two LSTM biases is
    fixed at zero, as in the published model, which has one."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, 96)
        self.recurrent = nn.LSTM(96, 670, batch_first=True)
        self.narrow, self.head = nn.Linear(670, 96), nn.Linear(96, symbols)
        self.recurrent.get_parameter("bias_hh_l0").requires_grad_(False).zero_()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.recurrent(self.embedding(inputs))
        outputs: torch.Tensor = self.head(self.narrow(hidden))
        return outputs

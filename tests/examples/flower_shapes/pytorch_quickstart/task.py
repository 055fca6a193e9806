"""A small CNN."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def digits(partition: int, partitions: int = 10) -> tuple:
    """Stands for the example's data set; the last 297 digits are the server's."""
    images, labels = load_digits(return_X_y=True)
    mine = slice(1500, None) if partition < 0 else slice(partition, 1500, partitions)
    return (images[mine] / 16).astype("float32"), labels[mine]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1 = nn.Linear(6 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = x.view(-1, 6 * 3 * 3)
        return self.fc2(F.relu(self.fc1(x)))


def load_data(partition_id: int, num_partitions: int):
    x, y = digits(partition_id, num_partitions)
    dataset = TensorDataset(torch.from_numpy(x).view(-1, 1, 8, 8), torch.from_numpy(y))
    return DataLoader(dataset, batch_size=32, shuffle=True), DataLoader(dataset, batch_size=32)


def train(net, trainloader, epochs, lr, device):
    net.to(device)
    criterion = torch.nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / len(trainloader)


def test(net, testloader, device):
    criterion = torch.nn.CrossEntropyLoss()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images.to(device))
            loss += criterion(outputs, labels.to(device)).item()
            correct += (torch.max(outputs.data, 1)[1] == labels).sum().item()
    return loss / len(testloader), correct / len(testloader.dataset)

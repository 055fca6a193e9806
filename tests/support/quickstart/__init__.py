"""A Flower app as `flwr new` makes one: the server's half with FedAvg, the client's half untouched by every test."""

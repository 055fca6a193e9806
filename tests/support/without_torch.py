"""Nodes without PyTorch: loops of other frameworks under `ff.private`.

    python tests/support/without_torch.py numpy sklearn jax keras

In a process where PyTorch cannot be imported, each framework named trains three users of a node; every sum is checked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np


class WithoutTorch(MetaPathFinder):
    """Finds PyTorch nowhere."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return None


IDS = ["anna", "ben", "cleo"]
NORM = 0.05


def rows(user: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    generator = np.random.default_rng(list(user.encode()))
    x = generator.normal(size=(20, 3)).astype(np.float32)
    return x, (x @ np.array([1.0, -2.0, 0.5], np.float32) > 0).astype(np.int64)


def numpy_loop() -> tuple[Callable[[], Any], Callable[..., Any]]:
    """Names of one's own, a shuffle, an array that is not trained."""

    def build() -> dict[str, Any]:
        return {"w": np.zeros(3, np.float32), "b": np.zeros(1), "classes": np.array([0, 1])}

    def train(model: dict[str, Any], user: str, context: Any, config: dict[str, Any]) -> dict[str, Any]:
        x, y = rows(user)
        for row in np.random.permutation(len(y)):
            wrong = 1 / (1 + np.exp(-(x[row] @ model["w"] + model["b"][0]))) - y[row]
            model["w"] -= config["lr"] * wrong * x[row]
            model["b"] -= config["lr"] * wrong
        return model

    return build, train


def sklearn_loop() -> tuple[Callable[[], Any], Callable[..., Any]]:
    """As Flower's scikit-learn example: lists of parameters, float64, into and out of an estimator."""
    from sklearn.linear_model import SGDClassifier

    def build() -> list[Any]:
        return [np.zeros((1, 3)), np.zeros(1)]

    def train(model: list[Any], user: str, context: Any, config: dict[str, Any]) -> list[Any]:
        x, y = rows(user)
        estimator = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=config["lr"], max_iter=5, tol=None)
        estimator.fit(x, y, coef_init=model[0].reshape(-1), intercept_init=model[1])
        return [estimator.coef_, estimator.intercept_]

    return build, train


def jax_loop() -> tuple[Callable[[], Any], Callable[..., Any]]:
    """A pytree, flattened as Flower's JAX example does."""
    import jax
    import jax.numpy as jnp

    tree = {"dense": {"kernel": jnp.zeros((3, 1)), "bias": jnp.zeros(1)}}
    structure = jax.tree.structure(tree)

    def loss(params: Any, x: Any, y: Any) -> Any:
        logits = (x @ params["dense"]["kernel"] + params["dense"]["bias"])[:, 0]
        return jnp.mean(jnp.logaddexp(0.0, logits) - y * logits)

    gradient = jax.jit(jax.grad(loss))

    def build() -> list[Any]:
        return jax.tree.leaves(tree)

    def train(model: list[Any], user: str, context: Any, config: dict[str, Any]) -> list[Any]:
        x, y = rows(user)
        params = jax.tree.unflatten(structure, model)
        key = jax.random.key(np.random.randint(2**31))
        for _ in range(5):
            key, own = jax.random.split(key)
            chosen = jax.random.permutation(own, len(y))[:10]
            step = gradient(params, x[chosen], y[chosen])
            params = jax.tree.map(lambda p, g: p - config["lr"] * g, params, step)
        return list(jax.tree.leaves(params))

    return build, train


def keras_loop() -> tuple[Callable[[], Any], Callable[..., Any]]:
    """Weights into and out of a model with dropout; Keras computes with JAX."""
    import os

    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    def make() -> Any:
        layers = [keras.layers.Dropout(0.3), keras.layers.Dense(1, activation="sigmoid")]
        return keras.Sequential([keras.Input((3,)), *layers])

    def train(model: list[Any], user: str, context: Any, config: dict[str, Any]) -> list[Any]:
        x, y = rows(user)
        x = x + keras.random.normal(x.shape)  # from a generator that lasts as long as the process
        network = make()
        network.set_weights(model)
        network.compile(keras.optimizers.SGD(config["lr"]), "binary_crossentropy")
        network.fit(x, y[:, None], batch_size=10, epochs=2, verbose=0)
        return list(network.get_weights())

    return lambda: make().get_weights(), train


LOOPS = {"numpy": numpy_loop, "sklearn": sklearn_loop, "jax": jax_loop, "keras": keras_loop}


def node(build: Callable[[], Any], train: Callable[..., Any]) -> Any:
    """An app of one node with three users."""
    from flwr.clientapp import ClientApp

    from fieldfare_client import private

    train.__module__ = __name__  # a list of users and a loop belong together by their module
    app = ClientApp()
    app.query("users")(private.users(lambda context: IDS))
    handler = private.train(build)(train)
    app.train()(handler)
    return app, handler


def require_sums(name: str) -> None:
    """Train by a loop; raises AssertionError where a sum is not the sum of its users' own updates."""
    from flwr.app import ConfigRecord, Message

    from fieldfare import clipping
    from fieldfare.plan_tables import ClientSpec
    from fieldfare.schema import pseudonyms
    from fieldfare_client import private
    from fieldfare_client.simulation import LocalGrid
    from fieldfare_flower.messages import Occasion, TrainInstruction, TrainReply

    build, train = LOOPS[name]()
    app, handler = node(build, train)
    if name in ("numpy", "sklearn"):  # JAX has threads, which no forked process has
        private.check(handler, IDS, config={"lr": 0.1})
    schema, occasion = handler.node.model.schema, Occasion("run-1", 4, 0)

    def summed(users: list[str]) -> Any:
        spec = clipping.parse({"kind": "adaptive-quantile", "norm": NORM}).model_dump(mode="json")
        settings = {"client": ClientSpec().model_dump(mode="json"), "clipping": spec, "seed": 7}
        start = schema.split(np.zeros(schema.numel, np.float32))
        content = TrainInstruction(occasion, (start,), (1.0,), pseudonyms(users), settings, 1, 4).write()
        content["config"] = ConfigRecord({"lr": 0.1})
        (reply,) = LocalGrid(app, 1, {}).send_and_receive([Message(content, 2, "train")])
        assert not reply.has_error(), reply.error
        read = TrainReply.read(reply.content, schema, occasion, len(users), counts=1)
        assert read.counts == (float(len(users)),), "every update was longer than the norm"
        return np.concatenate([value.reshape(-1) for value in read.update.values()])

    alone = [summed([user]) for user in IDS]
    assert all(abs(np.linalg.norm(update) - 1) < 1e-4 for update in alone), "each as long as the bound"
    assert len({update.tobytes() for update in alone}) == len(IDS)
    total = np.sum([update.astype(np.float64) for update in alone], axis=0).astype(np.float32)
    assert np.array_equal(summed(IDS), total), "one user's update does not depend on another's"
    print(f"{name}: {schema.numel} parameters")


if __name__ == "__main__":
    sys.meta_path.insert(0, WithoutTorch())
    for each in sys.argv[1:]:
        require_sums(each)
    assert "torch" not in sys.modules

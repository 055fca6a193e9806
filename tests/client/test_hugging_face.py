"""Tiny BERT, Llama, GPT-2 with random weights, whole and with LoRA: a loop of one's own, and the Task trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from torch import nn

from fieldfare import clipping
from fieldfare.plan_tables import ClientSpec
from fieldfare.schema import Schema, pseudonym, pseudonyms
from fieldfare.task import Task, complete_state, seeded
from fieldfare_client import private
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable
from fieldfare_flower.messages import Occasion, TrainInstruction, TrainReply

transformers = pytest.importorskip("transformers", reason="transformers is in the extra [dev]")
peft = pytest.importorskip("peft", reason="peft is in the extra [dev]")

SIZES: dict[str, int] = {"vocab_size": 32, "max_position_embeddings": 16}
OCCASION = Occasion("run", 0, 0)
IDS = ["anna", "ben", "cleo"]


def bert() -> Any:
    config = transformers.BertConfig(
        **SIZES, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=2
    )
    return transformers.BertForSequenceClassification(config)


def llama(dtype: torch.dtype = torch.float32) -> Any:
    config = transformers.LlamaConfig(
        **SIZES, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    return transformers.LlamaForCausalLM(config).to(dtype)


def gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=32, n_embd=8, n_layer=1, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


TARGETS = {bert: ["query", "value"], llama: ["q_proj", "v_proj"], gpt2: ["c_attn"]}


def adapted(make: Callable[..., Any], **options: Any) -> Any:
    kind = "SEQ_CLS" if make is bert else "CAUSAL_LM"
    lora = peft.LoraConfig(
        r=2, lora_dropout=0.1, target_modules=TARGETS[make], task_type=kind, fan_in_fan_out=make is gpt2
    )
    return peft.get_peft_model(make(**options), lora)


MODELS: dict[str, Callable[[], Any]] = {
    "bert": bert,
    "llama": llama,
    "gpt2": gpt2,
    "bert lora": lambda: adapted(bert),
    "llama lora": lambda: adapted(llama),
    "llama lora on bfloat16": lambda: adapted(llama, dtype=torch.bfloat16),
    "gpt2 lora": lambda: adapted(gpt2),
}


def built(kind: str) -> Any:
    with seeded(4):
        return MODELS[kind]()


def batch_of(user: str) -> dict[str, torch.Tensor]:
    generator = np.random.default_rng(pseudonym(user) % 2**32)
    ids = torch.from_numpy(generator.integers(0, 32, (6, 10)))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def loop(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
    """As in Hugging Face's own examples: AdamW, dropout on, the loss from `model(**batch)`."""
    assert model.training
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    batch = batch_of(user)
    labels = batch["input_ids"][:, 0] % 2 if model.config.model_type == "bert" else batch["input_ids"]
    for _ in range(2):
        optimizer.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimizer.step()


def summed(grid: LocalGrid, schema: Schema, users: list[str], kind: str) -> torch.Tensor:
    arrays = schema.arrays(schema.flatten(dict(built(kind).named_parameters())))
    spec = clipping.parse({"kind": "flat", "norm": 1.0})
    settings = {"client": ClientSpec().model_dump(mode="json"), "clipping": spec.model_dump(mode="json"), "seed": 7}
    content = TrainInstruction(OCCASION, (arrays,), (1.0,), pseudonyms(users), settings).write()
    (reply,) = grid.send_and_receive([Message(content, 2, "train")])
    assert not reply.has_error(), reply.error
    read = TrainReply.read(reply.content, schema, OCCASION, len(users))
    return schema.flatten({name: torch.from_numpy(value.copy()) for name, value in read.update.items()})


@pytest.mark.parametrize("kind", MODELS)
def test_a_loop_of_ones_own_trains_it_and_sends_what_requires_a_gradient(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = Schema.of(built(kind))
    if "lora" in kind:
        assert all("lora_" in name or "classifier" in name for name in schema.names)

    def make() -> LocalGrid:
        app = ClientApp()
        app.query("users")(private.users(lambda context: IDS))
        app.train()(private.train(lambda: built(kind))(loop))
        return LocalGrid(app, 1, {})

    alone = {user: summed(make(), schema, [user], kind) for user in IDS[:2]}
    assert "contribute zero" not in caplog.text
    assert all(0 < float(update.norm()) <= 1 for update in alone.values())
    both = (alone["anna"].double() + alone["ben"].double()).float()
    assert torch.equal(summed(make(), schema, ["anna", "ben"], kind), both)


class Logits(nn.Module):
    """One tensor in, one out: token ids to the logits of the last token, or of the class."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids=ids).logits
        return logits if logits.dim() == 2 else logits[:, -1]


class Words(Task):
    """A bundled kind of task around a Hugging Face model."""

    name, score_name, held_out = "words", "loss", "Nothing is evaluated."

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def build_model(self) -> nn.Module:
        with seeded(4):
            return Logits(MODELS[self.kind]())

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs.float(), targets, reduction="none")

    def users(self) -> UserTable:
        ids = np.concatenate([batch_of(user)["input_ids"].numpy() for user in IDS])
        return UserTable(IDS, np.arange(len(IDS) + 1) * 6, {"x": ids, "y": ids[:, 0] % 2})

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": 0.0}


@pytest.mark.parametrize("kind", MODELS)
def test_the_task_trainer_trains_it(kind: str) -> None:
    task = Words(kind)
    model = task.build_model()
    schema = Schema.of(model)
    point = schema.flatten(dict(model.named_parameters()))
    client = ClientSpec(batch_size=3, learning_rate=0.1)

    def update(users: list[int], engine: str) -> torch.Tensor:
        trainer = Trainer(task, client.model_copy(update={"engine": engine}), lambda updates: None)
        cohort = trainer.train([point], [1.0], task.users(), np.array(users), at_round=1)
        assert not cohort.failures
        return cohort.update

    first, second = update([0], "loop"), update([1], "loop")
    assert first.any()
    assert torch.equal(update([0, 1], "loop"), first + second)
    torch.testing.assert_close(update([0, 1], "auto"), first + second, rtol=1e-3, atol=1e-5)
    # The released model is a whole state dict: frozen base, tied head and buffers are in it.
    complete = complete_state(model, schema.split(point + first.float()))
    again = task.build_model()
    again.load_state_dict(complete, strict=True)
    after = schema.flatten(dict(again.named_parameters()))
    torch.testing.assert_close(after, point + first.float(), rtol=0, atol=0)

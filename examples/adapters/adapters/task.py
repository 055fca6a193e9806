"""A BERT classifier with LoRA, and sentences. Replace the configuration by `from_pretrained` for a real one."""

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import BertConfig, BertForSequenceClassification

WORDS, LENGTH = 64, 12
GLAD = 8
"""Sentences are numbers of words. Those that have more of the first 8 words than of the next 8 are of class 1."""


def make_model() -> PeftModel:
    torch.manual_seed(0)  # the frozen base must be the same on every node, as a pretrained one is
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LENGTH,
        num_labels=2,
    )
    lora = LoraConfig(r=4, target_modules=["query", "value"], task_type="SEQ_CLS")
    return get_peft_model(BertForSequenceClassification(config), lora)


def sentences(seed: int, count: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    words = torch.randint(WORDS, (count, LENGTH), generator=draw)
    glad, sad = (words < GLAD).sum(1), ((words >= GLAD) & (words < 2 * GLAD)).sum(1)
    return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": (glad > sad).long()}


def accuracy(model: PeftModel) -> float:
    batch = sentences(10_000, 400)
    model.eval()
    with torch.no_grad():
        return float((model(**batch).logits.argmax(1) == batch["labels"]).float().mean())

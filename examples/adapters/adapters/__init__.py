"""LoRA adapters of a Hugging Face classifier. Only the adapters and the new head travel."""

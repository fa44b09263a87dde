"""Multi-label fine-tuning with Hugging Face's Trainer on batches that D2ACE selects.

The model is tiny and starts from random weights, so that nothing is downloaded.

python examples/hugging_face.py
"""

from __future__ import annotations

import tempfile

import torch

import d2ace
from d2ace.integrations.transformers import SelectionTrainer

# isort: split
import datasets
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

if __name__ == "__main__":
    torch.manual_seed(0)
    tokens = torch.randint(2, 30, (160, 8))
    labels = torch.stack([(tokens == k).any(1) for k in (5, 6, 7, 8)], dim=1).float()
    columns = {"input_ids": tokens.tolist(), "labels": labels.tolist()}
    train_set = datasets.Dataset.from_dict(columns).with_format("torch")

    config = BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=4,
        problem_type="multi_label_classification",
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=4,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            learning_rate=5e-3,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        )
        selector = d2ace.D2ACE(labels, batch_size=16, epochs=4, warmup=1)
        model = BertForSequenceClassification(config)
        trainer = SelectionTrainer(model, arguments, train_dataset=train_set, selector=selector)
        trained = trainer.train()
    hardest = selector.weights["hardness"].topk(3).indices.tolist()
    print(f"loss {trained.training_loss:.3f}; the hardest rows are {hardest}")

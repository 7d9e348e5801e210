# SPDX-License-Identifier: Apache-2.0
"""Adapters of the peft library on tiny models are clipped right, or refused; what is frozen takes no part."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import training.whole_models.compiled_operators  # isort: skip  # noqa: F401
import peft  # isort: skip
import transformers  # isort: skip

from training.whole_models.harness import Batch, Case, check

N, WORDS = 4, 17
CASES: list[Case] = []


def _gpt2(dropout: float = 0.0) -> nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=WORDS,
            n_embd=8,
            n_layer=2,
            n_head=2,
            n_positions=16,
            bos_token_id=1,
            eos_token_id=2,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
        )
    )


def _bert(dropout: float = 0.0) -> nn.Module:
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=WORDS,
            hidden_size=8,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=12,
            max_position_embeddings=16,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            num_labels=3,
        )
    )


def _lora(base: Any, dropout: float = 0.0, kind: str = "LoraConfig", **more: Any) -> nn.Module:
    model = peft.get_peft_model(base(dropout), getattr(peft, kind)(**more))
    for name, parameter in model.named_parameters():  # half of an adapter is zero at first
        if parameter.requires_grad and not parameter.any():
            nn.init.normal_(parameter, generator=torch.Generator().manual_seed(len(name)), std=0.3)
    return model


def _lora_from_zero(base: Any, dropout: float = 0.0, **more: Any) -> nn.Module:
    return peft.get_peft_model(base(dropout), peft.LoraConfig(r=2, **more))


def _tokens() -> Batch:
    return (torch.randint(3, WORDS, (N, 6)),)


def _tokens_and_classes() -> Batch:
    return torch.randint(3, WORDS, (N, 6)), torch.randint(0, 3, (N,))


def _next_tokens(model: nn.Module, x: Tensor) -> Tensor:
    logits = model(x).logits[:, -6:-1]
    return F.cross_entropy(logits.transpose(1, 2), x[:, 1:], reduction="none").mean(1)


def _classes(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x).logits, y, reduction="none")


def _row(name: str, model: Any, expected: str = "right", **more: Any) -> None:
    batch, loss = (_tokens, _next_tokens) if "gpt-2" in name else (_tokens_and_classes, _classes)
    CASES.append(Case(name, model, batch, loss, expected, num_examples=N, **more))


for _dropout in (0.0, 0.2):
    _row(
        f"gpt-2, lora, dropout {_dropout}",
        partial(
            _lora, _gpt2, _dropout, r=2, lora_dropout=_dropout, target_modules=["c_attn"], fan_in_fan_out=True
        ),
    )
    _row(
        f"bert, lora, dropout {_dropout}",
        partial(_lora, _bert, _dropout, r=2, lora_dropout=_dropout, target_modules=["query", "value"]),
    )
    _row(
        f"bert, lora from zero, dropout {_dropout}",
        partial(_lora_from_zero, _bert, _dropout, lora_dropout=_dropout, target_modules=["query", "value"]),
    )
_row(
    "bert, lora and a trained head",
    partial(_lora, _bert, 0.2, r=2, target_modules=["query"], modules_to_save=["classifier"]),
)
_row("bert, lora with biases", partial(_lora, _bert, 0.0, r=2, target_modules=["query"], bias="lora_only"))
_row(
    "bert, lora of embeddings", partial(_lora, _bert, 0.0, r=2, target_modules=["word_embeddings"]), "either"
)
_row(
    "bert, lora with weights decomposed (dora)",
    partial(_lora, _bert, 0.0, r=2, target_modules=["query"], use_dora=True),
    "either",
)
_row(
    "bert, ia3",
    partial(_lora, _bert, 0.0, "IA3Config", target_modules=["query"], feedforward_modules=[]),
    "either",
)
_row(
    "gpt-2, prompt tuning",
    partial(_lora, _gpt2, 0.0, "PromptTuningConfig", task_type="CAUSAL_LM", num_virtual_tokens=3),
    "crashes",
)
_row(
    "gpt-2, prefix tuning",
    partial(_lora, _gpt2, 0.0, "PrefixTuningConfig", task_type="CAUSAL_LM", num_virtual_tokens=3),
    "either",
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_clipped_sum_is_that_of_single_examples_or_the_model_is_refused(case: Case) -> None:
    check(case)

# SPDX-License-Identifier: Apache-2.0
"""Tiny models of the transformers library, randomly initialised, are clipped right, or refused."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import training.whole_models.compiled_operators  # isort: skip  # noqa: F401
import transformers  # isort: skip

from training.whole_models.harness import Batch, Case, check

N, LENGTH, WORDS = 4, 6, 17
CASES: list[Case] = []

_SMALL = {"vocab_size": WORDS, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
_SMALL |= {"intermediate_size": 12, "max_position_embeddings": 16}
_GROUPED = _SMALL | {"num_key_value_heads": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _bert(kind: str, dropout: float, attention: str, **more: Any) -> nn.Module:
    config = transformers.BertConfig(
        **_SMALL, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, num_labels=3, **more
    )
    return _built(getattr(transformers, kind), config, attention)


def _distilbert(dropout: float, attention: str) -> nn.Module:
    config = transformers.DistilBertConfig(
        vocab_size=WORDS,
        dim=8,
        hidden_dim=12,
        n_layers=2,
        n_heads=2,
        max_position_embeddings=16,
        dropout=dropout,
        attention_dropout=dropout,
        seq_classif_dropout=dropout,
        num_labels=3,
    )
    return _built(transformers.DistilBertForSequenceClassification, config, attention)


def _gpt2(dropout: float, attention: str) -> nn.Module:
    config = transformers.GPT2Config(
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
    return _built(transformers.GPT2LMHeadModel, config, attention)


def _opt(dropout: float, attention: str) -> nn.Module:
    config = transformers.OPTConfig(
        vocab_size=WORDS,
        hidden_size=8,
        word_embed_proj_dim=8,
        ffn_dim=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        dropout=dropout,
        attention_dropout=dropout,
    )
    return _built(transformers.OPTForCausalLM, config, attention)


def _decoder(family: str, dropout: float, attention: str, **more: Any) -> nn.Module:
    config = getattr(transformers, f"{family}Config")(**_GROUPED, attention_dropout=dropout, **more)
    return _built(getattr(transformers, f"{family}ForCausalLM"), config, attention)


def _t5(dropout: float, attention: str) -> nn.Module:
    config = transformers.T5Config(
        vocab_size=WORDS,
        d_model=8,
        d_kv=4,
        d_ff=12,
        num_layers=2,
        num_heads=2,
        dropout_rate=dropout,
        decoder_start_token_id=0,
    )
    return _built(transformers.T5ForConditionalGeneration, config, attention)


def _vit(dropout: float, attention: str) -> nn.Module:
    config = transformers.ViTConfig(
        image_size=8,
        patch_size=4,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=3,
    )
    return _built(transformers.ViTForImageClassification, config, attention)


def _whisper(dropout: float, attention: str) -> nn.Module:
    config = transformers.WhisperConfig(
        vocab_size=WORDS,
        num_mel_bins=4,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=12,
        decoder_ffn_dim=12,
        max_source_positions=6,
        max_target_positions=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        dropout=dropout,
        attention_dropout=dropout,
        apply_spec_augment=False,
    )
    return _built(transformers.WhisperForConditionalGeneration, config, attention)


def _wav2vec2(dropout: float, attention: str) -> nn.Module:
    config = transformers.Wav2Vec2Config(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        conv_dim=(4, 4),
        conv_stride=(2, 2),
        conv_kernel=(3, 3),
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=4,
        num_labels=3,
        hidden_dropout=dropout,
        attention_dropout=dropout,
        activation_dropout=dropout,
        feat_proj_dropout=dropout,
        layerdrop=0.0,
        mask_time_prob=0.0,
        apply_spec_augment=False,
    )
    return _built(transformers.Wav2Vec2ForSequenceClassification, config, attention)


def _built(kind: type[nn.Module], config: Any, attention: str) -> nn.Module:
    config._attn_implementation = attention
    return kind(config)


def _tokens() -> Batch:
    return (torch.randint(3, WORDS, (N, LENGTH)),)


def _tokens_and_classes() -> Batch:
    return torch.randint(3, WORDS, (N, LENGTH)), torch.randint(0, 3, (N,))


def _padded_and_classes() -> Batch:
    mask = torch.ones(N, LENGTH, dtype=torch.long)
    mask[1, 4:] = mask[3, 2:] = 0
    return torch.randint(3, WORDS, (N, LENGTH)), torch.randint(0, 3, (N,)), mask


def _tokens_and_labels() -> Batch:
    tokens = torch.randint(3, WORDS, (N, LENGTH))
    return tokens, tokens.clone()


def _unequal_labels() -> Batch:
    tokens = torch.randint(3, WORDS, (N, LENGTH))
    labels = tokens.clone()
    labels[1, 2:] = labels[3, 4:] = -100
    return tokens, labels


def _images() -> Batch:
    return torch.randn(N, 3, 8, 8), torch.randint(0, 3, (N,))


def _classes(model: nn.Module, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    more = {} if mask is None else {"attention_mask": mask}
    return F.cross_entropy(model(x, **more).logits, y, reduction="none")


def _classes_inside(model: nn.Module, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    more = {} if mask is None else {"attention_mask": mask}
    return model(x, labels=y, **more).loss


def _next_tokens(model: nn.Module, x: Tensor, y: Tensor | None = None) -> Tensor:
    logits, labels = model(x).logits[:, :-1], (x if y is None else y)[:, 1:]
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return losses.sum(1) / (labels >= 0).sum(1)


def _same_tokens(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    losses = F.cross_entropy(model(x).logits.transpose(1, 2), y, reduction="none")
    return losses.sum(1) / (y >= 0).sum(1)


def _loss_inside(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return model(x, labels=y).loss


def _sequence(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    losses = F.cross_entropy(model(x, labels=y.clamp(min=0)).logits.transpose(1, 2), y, reduction="none")
    return losses.sum(1) / (y >= 0).sum(1)


def _row(
    name: str,
    model: Callable[[], nn.Module],
    batch: Callable[[], Batch],
    loss: Callable[..., Tensor],
    expected: str = "right",
    **more: Any,
) -> None:
    CASES.append(Case(name, model, batch, loss, expected, num_examples=N, **more))


_LANGUAGE: dict[str, Callable[[float, str], nn.Module]] = {
    "gpt-2": _gpt2,
    "opt": _opt,
    "llama": partial(_decoder, "Llama"),
    "gemma": partial(_decoder, "Gemma", head_dim=4),
    "mistral": partial(_decoder, "Mistral"),
    "qwen2": partial(_decoder, "Qwen2"),
}
for _dropout in (0.0, 0.2):
    for _attention in ("sdpa", "eager"):
        _how = f"{_attention}, dropout {_dropout}"
        _settings = {"dropout": _dropout, "attention": _attention}
        _row(
            f"bert, classes, {_how}",
            partial(_bert, "BertForSequenceClassification", **_settings),
            _tokens_and_classes,
            _classes,
        )
        _row(
            f"bert, padded, {_how}",
            partial(_bert, "BertForSequenceClassification", **_settings),
            _padded_and_classes,
            _classes,
        )
        _row(
            f"bert, masked words, {_how}",
            partial(_bert, "BertForMaskedLM", **_settings),
            _unequal_labels,
            _same_tokens,
        )
        _row(f"distilbert, {_how}", partial(_distilbert, **_settings), _tokens_and_classes, _classes)
        _row(f"vit, {_how}", partial(_vit, **_settings), _images, _classes)
        for _name, _model in _LANGUAGE.items():
            _row(f"{_name}, {_how}", partial(_model, **_settings), _tokens, _next_tokens)
    _row(f"t5, dropout {_dropout}", partial(_t5, _dropout, "eager"), _unequal_labels, _sequence, "either")

_row(
    "bert, untied",
    partial(_bert, "BertForMaskedLM", 0.0, "sdpa", tie_word_embeddings=False),
    _unequal_labels,
    _same_tokens,
)
_row(
    "bert, loss inside",
    partial(_bert, "BertForSequenceClassification", 0.0, "sdpa"),
    _tokens_and_classes,
    _classes_inside,
)
_row("vit, loss inside", partial(_vit, 0.0, "sdpa"), _images, _classes_inside)
_row(
    "bert, masked words, loss inside, unequal",
    partial(_bert, "BertForMaskedLM", 0.0, "sdpa"),
    _unequal_labels,
    _loss_inside,
    "refused",
)
for _name, _model in _LANGUAGE.items():
    _row(
        f"{_name}, loss inside, equal",
        partial(_model, 0.0, "sdpa"),
        _tokens_and_labels,
        _loss_inside,
    )
    _row(
        f"{_name}, loss inside, unequal",
        partial(_model, 0.0, "sdpa"),
        _unequal_labels,
        _loss_inside,
        "refused",
    )
    _row(f"{_name}, unequal, a loss per example", partial(_model, 0.0, "sdpa"), _unequal_labels, _next_tokens)
_row("t5, loss inside, equal", partial(_t5, 0.0, "eager"), _tokens_and_labels, _loss_inside, "either")
_row("t5, loss inside, unequal", partial(_t5, 0.0, "eager"), _unequal_labels, _loss_inside, "refused")


def _mixtral(**more: Any) -> nn.Module:
    model = _decoder("Mixtral", 0.0, "sdpa", num_local_experts=2, num_experts_per_tok=1, **more)
    model.set_experts_implementation("eager")  # the other one has no float64
    return model


_row("mixtral", _mixtral, _tokens, _next_tokens, "either")
_row(
    "mixtral, with its balance loss",
    partial(_mixtral, output_router_logits=True),
    _tokens_and_labels,
    _loss_inside,
    "refused",
)


def _speech() -> Batch:
    return torch.randn(N, 4, 12), torch.randint(3, WORDS, (N, 5))


_row("whisper", partial(_whisper, 0.0, "sdpa"), _speech, _sequence, "either")
_row("whisper, dropout", partial(_whisper, 0.2, "eager"), _speech, _sequence, "either")
_row(
    "wav2vec2",
    partial(_wav2vec2, 0.0, "sdpa"),
    lambda: (torch.randn(N, 60), torch.randint(0, 3, (N,))),
    _classes,
)


def _checkpointed(build: Callable[[], nn.Module]) -> nn.Module:
    model = build()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


for _name, _build, _batch, _loss in (
    ("gpt-2", partial(_gpt2, 0.2, "sdpa"), _tokens, _next_tokens),
    ("llama", partial(_decoder, "Llama", 0.0, "sdpa"), _tokens, _next_tokens),
    ("bert", partial(_bert, "BertForSequenceClassification", 0.2, "sdpa"), _tokens_and_classes, _classes),
):
    _row(
        f"{_name}, gradient checkpointing",
        partial(_checkpointed, _build),
        _batch,
        _loss,
        "either",
        plain=_build,
    )


def _head_only(build: Callable[[], nn.Module]) -> nn.Module:
    model = build()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("classifier"))
    return model


def _without_embeddings(build: Callable[[], nn.Module]) -> nn.Module:
    model = build()
    model.get_input_embeddings().requires_grad_(False)
    return model


_BERT = partial(_bert, "BertForSequenceClassification", 0.2, "sdpa")
_row("bert, only the head trained", partial(_head_only, _BERT), _tokens_and_classes, _classes)
_row("bert, embeddings frozen", partial(_without_embeddings, _BERT), _tokens_and_classes, _classes)
_row(
    "gpt-2, embeddings (and head) frozen",
    partial(_without_embeddings, partial(_gpt2, 0.0, "sdpa")),
    _tokens,
    _next_tokens,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_clipped_sum_is_that_of_single_examples_or_the_model_is_refused(case: Case) -> None:
    check(case)


# The harness cannot cut a fused dropout of a GPU into examples.
_DRAWING = ("dropout 0.2", "only the head trained", "embeddings frozen")


@pytest.mark.cuda
@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.name.endswith(_DRAWING)], ids=lambda case: case.name
)
def test_on_a_gpu_the_clipped_sum_is_that_of_single_examples_or_the_model_is_refused(case: Case) -> None:
    check(replace(case, device="cuda"))

"""A tiny random BERT and a WordPiece tokenizer of a few words, built without any file or download."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from rosewood.words.language_models import CausalLM, MaskedLM

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    "film",
    "good",
]


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Knows the letters and two words."""
    return tokenizer_of(VOCABULARY)


def tokenizer_of(vocabulary: Sequence[str], **special: str) -> PreTrainedTokenizerFast:
    """Knows this vocabulary of whole words and pieces."""
    pieces = {token: number for number, token in enumerate(vocabulary)}
    backend = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", pieces["[CLS]"]), ("[SEP]", pieces["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=128,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        **special,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def tiny_masked_lm(words: Sequence[str], seed: int = 0) -> MaskedLM:
    """A random BERT that fills masks; its tokenizer knows these words, and spells the others."""
    vocabulary = list(dict.fromkeys([*VOCABULARY, "[MASK]", *words]))
    tokenizer = tokenizer_of(vocabulary, mask_token="[MASK]")
    torch.manual_seed(seed)
    config = _config(len(vocabulary), initializer_range=0.5)
    return MaskedLM(BertForMaskedLM(config), tokenizer)


def tiny_causal_lm() -> CausalLM:
    """A random GPT-2 with the tokenizer of the tiny classifier."""
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    tokenizer.bos_token = "[CLS]"
    config = GPT2Config(
        vocab_size=len(VOCABULARY), n_embd=16, n_layer=1, n_head=2, n_positions=64, initializer_range=0.5
    )
    return CausalLM(GPT2LMHeadModel(config), tokenizer, max_length=50)


def tiny_classifier(labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")) -> BertForSequenceClassification:
    """A model with dropout, in training mode, whose outputs have these names."""
    torch.manual_seed(0)
    config = _config(
        len(VOCABULARY),
        initializer_range=0.5,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
    )
    return BertForSequenceClassification(config).train()


def _config(vocabulary: int, **settings: Any) -> BertConfig:
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
        **settings,
    )


def save_tiny_checkpoint(folder: Path, labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")) -> Path:
    """A classifier on disk, as `rosewood train --model FOLDER` takes it."""
    tiny_classifier(labels).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def save_tiny_encoder(folder: Path) -> Path:
    """A pre-trained model on disk that has no head yet."""
    tiny_classifier().base_model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder

"""A tiny random BERT and a WordPiece tokenizer of a few words, built without any file or download."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

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
    pieces = {token: number for number, token in enumerate(VOCABULARY)}
    backend = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
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
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def tiny_classifier(labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")) -> BertForSequenceClassification:
    """A model with dropout, in training mode, whose outputs have these names."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
        initializer_range=0.5,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
    )
    return BertForSequenceClassification(config).train()


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

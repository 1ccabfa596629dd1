"""Tiny models of the architectures people fine-tune, with random weights and some dropout, and data that suits all."""

from collections.abc import Callable

import torch
import transformers as hf
from torch import nn

from tiny import VOCABULARY, TinyData, tiny_bert

EOS = 2


def bert() -> nn.Module:
    return tiny_bert(dtype=torch.float32)


def roberta() -> nn.Module:
    config = hf.RobertaConfig(vocab_size=VOCABULARY, max_position_embeddings=40, pad_token_id=1, **ENCODER)
    return hf.RobertaForSequenceClassification(config)


def distilbert() -> nn.Module:
    config = hf.DistilBertConfig(vocab_size=VOCABULARY, dim=16, hidden_dim=32, n_layers=2, n_heads=2)
    return hf.DistilBertForSequenceClassification(config)


def albert() -> nn.Module:
    config = hf.AlbertConfig(vocab_size=VOCABULARY, embedding_size=8, num_hidden_groups=1, **ENCODER)
    return hf.AlbertForSequenceClassification(config)


def electra() -> nn.Module:
    return hf.ElectraForSequenceClassification(hf.ElectraConfig(vocab_size=VOCABULARY, embedding_size=8, **ENCODER))


def deberta() -> nn.Module:
    config = hf.DebertaV2Config(
        vocab_size=VOCABULARY,
        relative_attention=True,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        **ENCODER,
    )
    return hf.DebertaV2ForSequenceClassification(config)


def mpnet() -> nn.Module:
    return hf.MPNetForSequenceClassification(hf.MPNetConfig(vocab_size=VOCABULARY, **ENCODER))


def xlnet() -> nn.Module:
    config = hf.XLNetConfig(vocab_size=VOCABULARY, pad_token_id=0, d_model=16, n_layer=2, n_head=2, d_inner=32)
    return hf.XLNetForSequenceClassification(config)


def gpt2() -> nn.Module:
    config = hf.GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=32, pad_token_id=0)
    return hf.GPT2ForSequenceClassification(config)


T5 = {"vocab_size": VOCABULARY, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}


def t5() -> nn.Module:
    return hf.T5ForSequenceClassification(hf.T5Config(**T5, eos_token_id=EOS, decoder_start_token_id=0))


def t5_encoder() -> nn.Module:
    return hf.T5ForTokenClassification(hf.T5Config(**T5))


def modernbert() -> nn.Module:
    dropout = {"embedding_dropout": 0.1, "attention_dropout": 0.1, "mlp_dropout": 0.1, "classifier_dropout": 0.1}
    config = hf.ModernBertConfig(vocab_size=VOCABULARY, pad_token_id=0, **dropout, **ENCODER)
    return hf.ModernBertForSequenceClassification(config)


def llama() -> nn.Module:
    config = hf.LlamaConfig(vocab_size=VOCABULARY, pad_token_id=0, attention_dropout=0.1, **ENCODER)
    return hf.LlamaForSequenceClassification(config)


ENCODER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
ARCHITECTURES: list[Callable[[], nn.Module]] = [
    *(bert, roberta, distilbert, albert, electra, deberta, mpnet, xlnet, gpt2, t5, t5_encoder, modernbert, llama)
]


class EosData(TinyData):
    """Sequences that end in one end-of-sequence token; labels for every token if asked for."""

    def __init__(self, per_token: bool = False) -> None:
        super().__init__(size=16)
        self.ids[:, -1] = EOS
        self.per_token = per_token

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        example = super().__getitem__(i)
        return example | {"labels": example["input_ids"] % 2} if self.per_token else example


class PaddedEosData(EosData):
    """The same, of 4 to 8 tokens, padded on the right the way a model wants it."""

    def __init__(self, model: nn.Module, per_token: bool = False) -> None:
        super().__init__(per_token)
        self.padding = model.config.pad_token_id or 0

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        example = super().__getitem__(i)
        end = 3 + i % 5
        ids, mask = example["input_ids"].clone(), example["attention_mask"]
        ids[end], ids[end + 1 :], mask[end + 1 :] = EOS, self.padding, 0
        labels = example["labels"].masked_fill(mask == 0, -100) if self.per_token else example["labels"]
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

"""The parameters that a selection chooses among, on the architectures people fine-tune."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers as hf
from torch import nn

from rose_oracle import bert_candidates
from rosewood.candidates import candidate_names
from rosewood.errors import RecipeError
from rosewood.recipe import load_recipe
from tiny import VOCABULARY, TinyData, differing, tiny_bert, trained, weights

EOS = 1


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
    config = hf.XLNetConfig(vocab_size=VOCABULARY, d_model=16, n_layer=2, n_head=2, d_inner=32)
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
    config = hf.ModernBertConfig(vocab_size=VOCABULARY, pad_token_id=0, **ENCODER)
    return hf.ModernBertForSequenceClassification(config)


def llama() -> nn.Module:
    config = hf.LlamaConfig(vocab_size=VOCABULARY, pad_token_id=0, **ENCODER)
    return hf.LlamaForSequenceClassification(config)


ENCODER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
ARCHITECTURES: list[Callable[[], nn.Module]] = [
    *(bert, roberta, distilbert, albert, electra, deberta, mpnet, xlnet, gpt2, t5, t5_encoder, modernbert, llama)
]
# Where the repeated blocks of each architecture are, read off its definition by hand.
BLOCKS = {
    "bert": "bert.encoder.layer.",
    "roberta": "roberta.encoder.layer.",
    "distilbert": "distilbert.transformer.layer.",
    "albert": "albert.encoder.albert_layer_groups.",
    "electra": "electra.encoder.layer.",
    "deberta": "deberta.encoder.layer.",
    "mpnet": "mpnet.encoder.layer.",
    "xlnet": "transformer.layer.",
    "gpt2": "transformer.h.",
    "t5": "transformer.encoder.block.",
    "t5_encoder": "transformer.encoder.block.",
    "modernbert": "model.layers.",
    "llama": "model.layers.",
}
OUTSIDE = ("embedding.", "embeddings.", "pooler", "classifier", "score", "final_norm", "final_layer_norm", "ln_f")


class EosData(TinyData):
    """Sequences that end in one end-of-sequence token; labels for every token if asked for."""

    def __init__(self, per_token: bool = False) -> None:
        super().__init__(size=16)
        self.ids[:, -1] = EOS
        self.per_token = per_token

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        example = super().__getitem__(i)
        return example | {"labels": example["input_ids"] % 2} if self.per_token else example


@pytest.mark.parametrize("build", ARCHITECTURES, ids=lambda build: build.__name__)
def test_weights_of_the_blocks_and_nothing_else(build: Callable[[], nn.Module]) -> None:
    model = build()
    chosen = candidate_names(model)
    names = [name for name, _ in model.named_parameters()]
    assert chosen
    assert len(chosen) == len(set(chosen))
    prefix = BLOCKS[build.__name__]
    assert set(chosen) == {n for n in names if n.startswith(prefix) and "bias" not in n.rsplit(".", 1)[-1]}
    assert not [name for name in chosen if name.endswith("bias")]
    assert not [name for name in chosen if any(word in name for word in OUTSIDE)]
    matrices = [n for n, p in model.named_parameters() if n.startswith(prefix) and p.dim() > 1 and "bias" not in n]
    assert set(matrices) <= set(chosen)


@pytest.mark.parametrize("build", [bert, roberta], ids=lambda build: build.__name__)
def test_the_papers_rule_on_bert_and_roberta(build: Callable[[], nn.Module]) -> None:
    model = build()
    chosen = candidate_names(model)
    assert set(chosen) == bert_candidates(name for name, _ in model.named_parameters())
    assert len(chosen) == 8 * 2


@pytest.mark.parametrize("build", ARCHITECTURES, ids=lambda build: build.__name__)
def test_with_biases_everything_inside_the_blocks(build: Callable[[], nn.Module]) -> None:
    model = build()
    names = [name for name, _ in model.named_parameters()]
    chosen = candidate_names(model, biases=True)
    assert chosen == [name for name in names if name.startswith(BLOCKS[build.__name__])]
    if build in (bert, roberta):
        assert set(chosen) == {name for name in names if "layer" in name}, "the official rule of RoAST"
        assert len(chosen) == 16 * 2


def test_frozen_parameters_are_no_candidates() -> None:
    model = bert()
    model.bert.encoder.layer[0].requires_grad_(False)
    assert all(".layer.1." in name for name in candidate_names(model))
    assert len(candidate_names(model)) == 8


def test_a_model_without_blocks_is_refused() -> None:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 2)

    with pytest.raises(RecipeError, match="Bag has no trainable parameter inside repeated blocks"):
        candidate_names(Bag())
    assert candidate_names(Bag(), "head") == ["head.weight", "head.bias"]


def test_candidates_by_regular_expression() -> None:
    model = bert()
    chosen = candidate_names(model, r"(query|key)\.weight$")
    assert len(chosen) == 4
    assert all(name.endswith(("query.weight", "key.weight")) for name in chosen)
    with pytest.raises(RecipeError, match=r"no trainable parameter of BertForSequenceClassification matches 'nope'"):
        candidate_names(model, "nope")


def test_a_broken_regular_expression_is_a_recipe_error() -> None:
    with pytest.raises(RecipeError, match="regular expression"):
        candidate_names(bert(), "(query")


@pytest.mark.parametrize("build", ARCHITECTURES, ids=lambda build: build.__name__)
def test_every_architecture_trains(build: Callable[[], nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = build()
    before = weights(model)
    data = EosData(per_token=build is t5_encoder)
    # The ensemble freezes nothing at the first step (M >= 1 - gamma), so first-order masks show what may move.
    first = load_recipe("rose-first", {"selection.dropout": 0.1, "selection.keep_quantile": 0.3})
    trainer = trained(first, tmp_path, model=model, data=data, max_steps=1, logging_steps=1)
    moved = set(differing(before, weights(model)))
    frozen = {name for name, mask in trainer.masks[0].items() if mask == 0}
    assert len(frozen) > len(candidate_names(model)) / 2
    assert not moved & frozen
    used = {name for name, p in model.named_parameters() if p in trainer.optimizer.state}
    # A gradient of exactly zero (a key's bias, an unused position) moves nothing.
    state = trainer.optimizer.state
    still = {name for name, p in model.named_parameters() if p in state and not state[p]["exp_avg"].any()}
    assert used - frozen - still <= moved

    ensemble = load_recipe("rose-ensemble", {"selection.dropout": 0.1})
    trainer = trained(ensemble, tmp_path, model=model, data=data, max_steps=2, logging_steps=1)
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    assert len(losses) == 2
    assert all(0 < loss < 100 for loss in losses)
    assert set(trainer.masks[1].values()) <= {0.0, 0.5, 1.0}

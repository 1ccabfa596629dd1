"""The parameters that a selection chooses among, on the architectures people fine-tune."""

from collections.abc import Callable

import pytest
from torch import nn

from architectures import ARCHITECTURES, bert, roberta
from rose_oracle import bert_candidates
from rosewood.errors import RecipeError
from rosewood.models.parameters import candidate_names

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

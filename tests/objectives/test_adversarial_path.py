"""FreeLB's path: which passes it makes, and what it can be combined with."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from rosewood.errors import RecipeError
from rosewood.objectives.adversarial_path import AdversarialPath
from rosewood.perturbations.embedding_ascent import EmbeddingAscender, EmbeddingAscent
from rosewood.protocol import Feedback, Output, Pass, Progress
from rosewood.recipe import build_recipe, load_recipe
from slow_methods import PaddedData
from tiny import TinyData, tiny_bert, trained, weights

BATCH = default_collate([PaddedData()[i] for i in range(4)])
AT = Progress(0, 10)
FREELB = {"norm": "sentence", "initial": "sentence", "at": "words", "through_embeddings": True}


def walked(objective: AdversarialPath, **settings: Any) -> list[Pass]:
    """All passes of one batch, each with its backward."""
    model = tiny_bert().train()

    def call(batch: Any, other: Any = None) -> Output:
        found = model(**batch)
        return Output(found.loss, found.logits)

    perturber = EmbeddingAscender(EmbeddingAscent(**(FREELB | settings)), model)
    generator = objective.run(call, BATCH, perturber, AT)
    passes = [next(generator)]
    while True:
        passes[-1].terms[0].value.backward()
        try:
            leaves = [leaf.grad for leaf in passes[-1].leaves if leaf.grad is not None]
            passes.append(generator.send(Feedback(leaves, {})))
        except StopIteration:
            return passes


def test_one_pass_more_than_steps_and_the_mean_of_their_losses() -> None:
    passes = walked(AdversarialPath(), steps=3, step_size=0.1, initial_size=0.2, radius=0.15)
    assert [len(p.leaves) for p in passes] == [1, 1, 1, 0]
    assert not any(p.complete for p in passes)
    assert not any(p.clean for p in passes)
    assert all([term.name for term in p.terms] == ["ce"] for p in passes)
    assert all(p.terms[0].weight == 1.0 for p in passes)
    deltas = [p.leaves[0].detach() for p in passes[:-1]]
    norms = torch.stack([delta.flatten(1).norm(dim=1) for delta in deltas[1:]])
    assert norms.max() <= 0.15 + 1e-12
    assert not any(delta[BATCH["attention_mask"] == 0].any() for delta in deltas)


def test_the_path_starts_clean_if_it_starts_at_zero() -> None:
    passes = walked(AdversarialPath(), steps=1, initial_size=0.0)
    assert [len(p.clean) for p in passes] == [1, 0]
    (single,) = walked(AdversarialPath(), steps=0, initial_size=0.0)
    assert single.complete
    assert len(single.clean) == 1


@pytest.mark.parametrize("shared", [True, False])
def test_all_passes_have_the_same_dropout(shared: bool) -> None:
    first, second = walked(AdversarialPath(share_dropout=shared), steps=1, initial_size=0.0, step_size=1e-12)
    same = bool((first.terms[0].value - second.terms[0].value).abs() < 1e-9)
    assert same == shared


def test_it_climbs() -> None:
    passes = walked(AdversarialPath(), steps=4, step_size=0.02, initial_size=0.0)
    losses = [p.terms[0].value.item() for p in passes]
    assert losses == sorted(losses)
    assert losses[-1] > losses[0]


def test_one_pass_from_zero_is_vanilla_bit_for_bit(tmp_path: Path) -> None:
    plain = trained("vanilla", tmp_path, model=tiny_bert(dtype=torch.float32))
    turned = load_recipe("freelb", {"perturbation.steps": 0, "perturbation.initial_size": 0.0})
    found = trained(turned, tmp_path, model=tiny_bert(dtype=torch.float32))
    expected = weights(plain.model)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(found.model).items())


def test_rose_second_reads_the_whole_path(tmp_path: Path) -> None:
    """The cross-entropy of all passes is the total, so reading it alone changes nothing."""
    recipe = load_recipe("freelb", {"selection": {"name": "rose", "order": "second", "keep_quantile": 1.0}})
    plain = trained("freelb", tmp_path, data=TinyData(size=16), max_steps=3)
    read = trained(recipe, tmp_path, data=TinyData(size=16), max_steps=3)
    expected = weights(plain.model)
    for name, weight in weights(read.model).items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-12)


def refusal(**parts: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        build_recipe({"name": "mine", "objective": "adversarial_path", **parts})
    return str(caught.value)


def test_what_makes_no_sense_is_refused_with_a_sentence() -> None:
    needs = "needs perturbation embedding_ascent, got"
    assert f"{needs} none: name that one, or choose the objective consistency" in refusal()
    assert f"{needs} dropout" in refusal(perturbation="dropout")
    assert "would be ignored: set perturbation.loss=ce" in refusal(
        perturbation={"name": "embedding_ascent", "loss": "kl"}
    )
    blind = refusal(perturbation="embedding_ascent", selection="rose")
    assert "selection rose looks at a pass over the clean input, and objective adversarial_path has none" in blind
    assert "set perturbation.initial_size=0" in blind
    clean = {"name": "embedding_ascent", "initial_size": 0.0}
    build_recipe({"name": "x", "objective": "adversarial_path", "perturbation": clean, "selection": "rose"})

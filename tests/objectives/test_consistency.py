"""The objective consistency: its terms, its passes, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from keyed_draws import keyed_draws
from keyed_dropout import keyed_dropout
from rosewood.errors import RecipeError
from rosewood.objectives.consistency import Consistency
from rosewood.perturbations.dropout import SecondPass
from rosewood.perturbations.noise import Noise, NoiseMaker
from rosewood.protocol import Cost, Output, Progress
from rosewood.recipe import build_recipe, load_recipe
from tiny import TinyData, differing, tiny_bert, trained, weights

BATCH = default_collate([TinyData()[i] for i in range(4)])
AT = Progress(0, 10, examples=32)


class Counting:
    """Calls a model and counts how often."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.calls = 0

    def __call__(self, batch: Any, other: Any = None) -> Output:
        self.calls += 1
        found = self.model(**batch)
        return Output(found.loss, found.logits)


def only_pass(objective: Consistency, call: Any, perturber: Any) -> Any:
    (found,) = list(objective.run(call, BATCH, perturber, AT))
    return found


def test_both_dropout_passes_are_clean() -> None:
    call = Counting(tiny_bert().train())
    found = only_pass(Consistency(), call, SecondPass())
    assert call.calls == 2
    assert [term.name for term in found.terms] == ["ce", "dropout_kl"]
    assert [term.weight for term in found.terms] == [1.0, 0.5]
    assert len(found.clean) == 2
    assert not torch.equal(found.clean[0].logits, found.clean[1].logits)
    assert found.complete
    torch.testing.assert_close(found.terms[0].value, (found.clean[0].loss + found.clean[1].loss) / 2)


def test_a_disturbed_pass_is_not_clean() -> None:
    model = tiny_bert().train()
    found = only_pass(Consistency(), Counting(model), NoiseMaker(Noise(), model))
    assert [term.name for term in found.terms] == ["ce", "noise_kl"]
    assert len(found.clean) == 1


def test_a_sum_is_the_mean_times_the_examples_of_the_step() -> None:
    call = Counting(tiny_bert().train())
    values = []
    for reduction in ("mean", "sum"):
        torch.manual_seed(0)
        values.append(only_pass(Consistency(reduction=reduction), call, SecondPass()).terms[1].value)  # type: ignore[arg-type]
    torch.testing.assert_close(values[1], values[0] * 32)


def test_no_pass_without_use() -> None:
    call = Counting(tiny_bert().train())
    settings = Consistency(clean_weight=1.0, perturbed_weight=0.0, divergence_weight=0.0)
    found = only_pass(settings, call, SecondPass())
    assert call.calls == 1
    assert [(term.name, term.weight) for term in found.terms] == [("ce", 1.0)]
    assert found.terms[0].value is found.clean[0].loss


def test_shared_dropout_leaves_only_the_perturbation() -> None:
    model = tiny_bert().train()
    perturber = NoiseMaker(Noise(radius=0.0), model)
    fresh = only_pass(Consistency(), Counting(model), perturber).terms[1].value
    shared = only_pass(Consistency(share_dropout=True), Counting(model), perturber).terms[1].value
    assert fresh > 1e-6
    assert shared.abs() < 1e-12


def test_r_drop_without_dropout_is_plain_fine_tuning(tmp_path: Path) -> None:
    # Refused as a recipe on such a model, because it would do nothing; with dropout at a rate of 1e-12 it runs.
    plain = trained("vanilla", tmp_path, model=tiny_bert(dropout=0.0))
    almost = trained("r-drop", tmp_path, model=tiny_bert(dropout=1e-12))
    expected = weights(plain.model)
    for name, weight in weights(almost.model).items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["advweight:sam", "r3f", "advembed", "worddrop", "freelb"])
def test_without_a_perturbation_only_the_passes_remain(name: str, tmp_path: Path) -> None:
    """rho, radius, probability or start at 0 and no dropout: plain fine-tuning, up to rounding."""
    off = {
        "advweight:sam": {"perturbation.rho": 0.0},
        "r3f": {"perturbation.radius": 0.0},
        # Attached, or embeddings would learn through the clean pass alone, which has half the weight.
        "advembed": {
            "perturbation.steps": 0,
            "perturbation.initial_size": 0.0,
            "perturbation.through_embeddings": True,
        },
        "worddrop": {"perturbation.probability": 0.0, "objective.clean_weight": 1.0},
        "freelb": {"perturbation.step_size": 1e-300, "perturbation.initial_size": 0.0},
    }[name]
    plain = trained("vanilla", tmp_path, model=tiny_bert(dropout=0.0), max_steps=5)
    found = trained(load_recipe(name, off), tmp_path, model=tiny_bert(dropout=0.0), max_steps=5)
    expected = weights(plain.model)
    for parameter, weight in weights(found.model).items():
        torch.testing.assert_close(weight, expected[parameter], rtol=0, atol=1e-9)


def test_the_history_knows_every_term(tmp_path: Path) -> None:
    trainer = trained("advweight", tmp_path, max_steps=2, logging_steps=1)
    record = trainer.state.log_history[0]
    assert record["loss"] == pytest.approx(record["loss_ce"] + 0.005 * record["loss_weight_ascent_kl"], rel=1e-4)
    trainer = trained("advweight:sam", tmp_path, max_steps=2, logging_steps=1)
    record = trainer.state.log_history[0]
    assert record["loss"] == pytest.approx(record["loss_ce"], rel=1e-4)
    assert record["loss_ce"] > record["loss_ascent"], "the ascent has raised the loss"


def test_rose_shares_the_passes_of_r_drop(tmp_path: Path) -> None:
    model = tiny_bert()
    forwards = []
    model.register_forward_pre_hook(lambda module, args: forwards.append(1))
    trained("r-drop+rose-ensemble", tmp_path, model=model, max_steps=3)
    assert len(forwards) == 2 * 3


@pytest.mark.parametrize("name", ["advweight", "advweight:sam", "advembed", "r-drop"])
def test_reading_the_cross_entropy_alone_changes_nothing(name: str, tmp_path: Path) -> None:
    """Also where the ascent of the weights needs the gradient that was read apart."""
    keeping = load_recipe(name, {"selection": {"name": "rose", "order": "second", "keep_quantile": 1.0}})
    expected = weights(trained(name, tmp_path, max_steps=3).model)
    for parameter, weight in weights(trained(keeping, tmp_path, max_steps=3).model).items():
        torch.testing.assert_close(weight, expected[parameter], rtol=0, atol=1e-12)


COSTS = {
    "r-drop": Cost(2, 0, 2),
    "r-drop+rose-first": Cost(2, 0, 4),
    "r-drop+rose-second": Cost(2, 0, 4),
    "r-drop+rose-ensemble": Cost(2, 0, 4),
    "freelb": Cost(2, 0, 2),
    "freelb:rte": Cost(3, 0, 3),
    "advembed": Cost(3, 1, 2),
    "advweight": Cost(2, 0, 2),
    "advweight:sam": Cost(2, 0, 2),
    "r3f": Cost(2, 0, 2),
    "worddrop": Cost(2, 0, 2),
    "hiddencut": Cost(2, 0, 2),
}


@pytest.mark.parametrize("name", COSTS)
def test_the_cost_is_the_specified_one_and_the_forwards_are_real(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    assert recipe.cost() == COSTS[name]
    model = tiny_bert()
    passes = []
    model.bert.encoder.layer[1].register_forward_pre_hook(lambda module, args: passes.append(1))
    trained(recipe, tmp_path, model=model, max_steps=2)
    assert len(passes) == 2 * COSTS[name].forward
    assert recipe.cost().forward == COSTS[name].forward


def refusal(**parts: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        build_recipe({"name": "mine", **parts})
    return str(caught.value)


def test_what_makes_no_sense_is_refused_with_a_sentence() -> None:
    assert "and the recipe has no perturbation: name one, for example perturbation=dropout" in refusal(
        objective="consistency"
    )
    assert "makes the two passes equal, and perturbation dropout needs them to differ" in refusal(
        objective={"name": "consistency", "share_dropout": True}, perturbation="dropout"
    )
    assert "nothing is learned from the labels" in refusal(
        objective={"name": "consistency", "clean_weight": 0, "perturbed_weight": 0}, perturbation="dropout"
    )


def test_divergence_weight_zero_has_no_divergence_for_rose_to_read() -> None:
    settings = {"objective.divergence_weight": 0.0, "selection.risk_term": "objective"}
    with pytest.raises(RecipeError, match="reads the divergence of the objective, and consistency has none"):
        load_recipe("r-drop+rose-first", settings)


@pytest.mark.parametrize("divergence", ["symmetric", "forward", "js"])
def test_every_divergence_moves_the_weights_differently(divergence: str, tmp_path: Path) -> None:
    found = {}
    for kind in ("symmetric", divergence):
        model = tiny_bert()
        with keyed_dropout(model), keyed_draws():
            trained(load_recipe("r-drop", {"objective.divergence": kind}), tmp_path, model=model, max_steps=2)
        found[kind] = weights(model)
    assert any(differing(found["symmetric"], found[divergence])) == (divergence != "symmetric")

"""The worst mixture of words and substitutes: against a slow transcription, at its corners, on every architecture."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, default_collate

from architectures import ARCHITECTURES, PaddedEosData
from rosewood.errors import RecipeError, RunError
from rosewood.perturbations.synonym_hull import HullClimber, SubstituteMixture, SynonymHull, choice_weights
from rosewood.protocol import Output
from rosewood.recipe import load_recipe
from rosewood.training.trainer import RobustTrainer
from rosewood.words.alignment import SUBSTITUTES, SubstituteCollator
from slow_methods import PaddedData
from tiny import TinyData, arguments, differing, tiny_bert, trained
from tiny import weights as weights_of
from tiny_substitutes import Substituted

DATA = Substituted(PaddedData())
BATCH = SubstituteCollator(default_collate)([DATA[i] for i in range(6)])
PLAIN = {key: value for key, value in BATCH.items() if key != SUBSTITUTES}
NOTHING = Output(torch.zeros(()), torch.zeros(6, 2))


def caller(model: Any) -> Any:
    def call(batch: Any, other: Any = None) -> Output:
        found = model(**{key: value for key, value in batch.items() if key != SUBSTITUTES})
        return Output(found.loss, found.logits)

    return call


# The slow transcription: BERT's parts by hand, loops over texts, words and choices, Adam written out.


def slow_choices(row: int) -> dict[int, list[list[tuple[int, int, float]]]]:
    """To the first token of each word its choices, each a list of (place, token, share); the word itself first."""
    columns = DATA[row][SUBSTITUTES]
    found: dict[int, list[list[tuple[int, int, float]]]] = {}
    for place, first, slot, token, share in zip(
        columns["place"], columns["first"], columns["slot"], columns["token"], columns["share"], strict=True
    ):
        choices = found.setdefault(first, [[]])
        while len(choices) <= slot:
            choices.append([])
        choices[slot].append((place, token, share))
    for first, choices in found.items():
        places = sorted({place for place, _, _ in choices[1]})
        choices[0] = [(place, int(BATCH["input_ids"][row, place]), 1.0) for place in places]
        assert places[0] == first
    return found


def slow_mixed(own: Tensor, vectors: Any, weights: dict[tuple[int, int], Tensor]) -> Tensor:
    """The encoder's input; `vectors(row, place, slot, token)` embeds one token."""
    rows = []
    for row in range(len(own)):
        places = [own[row, place] for place in range(own.shape[1])]
        for first, choices in slow_choices(row).items():
            for place in {place for choice in choices for place, _, _ in choice}:
                places[place] = sum(  # type: ignore[call-overload]
                    weights[row, first][slot] * share * vectors(row, place, slot, token)
                    for slot, choice in enumerate(choices)
                    for at, token, share in choice
                    if at == place
                )
        rows.append(torch.stack(places))
    return torch.stack(rows)


def through_encoder(model: Any, hidden: Tensor) -> Tensor:
    bias = (1.0 - BATCH["attention_mask"].double())[:, None, None, :] * torch.finfo(torch.float64).min
    output = model.bert.encoder(hidden, attention_mask=bias).last_hidden_state
    return model.classifier(model.dropout(model.bert.pooler(output)))


def slow_kl(target: Tensor, logits: Tensor) -> Tensor:
    p, q = target.log_softmax(1), logits.log_softmax(1)
    return (p.exp() * (p - q)).sum()


def slow_worst(model: Any, settings: SynonymHull, start: Tensor) -> dict[tuple[int, int], Tensor]:
    """The weights after T steps of Adam, by (text, first token of the word)."""
    lengths = BATCH["attention_mask"].sum(1)
    scores = {}
    for row in range(6):
        for first, choices in slow_choices(row).items():
            spread = math.sqrt(2 / (int(lengths[row]) * settings.slots))
            scores[row, first] = start[row, first, : len(choices)] * spread
    moments = {key: (torch.zeros_like(v), torch.zeros_like(v)) for key, v in scores.items()}
    with torch.no_grad():
        own = model.bert.embeddings(BATCH["input_ids"])
        target = through_encoder(model, own)

    @torch.no_grad()
    def vector(row: int, place: int, slot: int, token: int) -> Tensor:
        ids = BATCH["input_ids"][row : row + 1].clone()
        ids[0, place] = token
        return model.bert.embeddings(ids)[0, place]

    divisor = 300 * 128 if settings.entropy_norm == "constant" else BATCH["input_ids"].numel()
    for step in range(1, settings.steps + 1):
        leaves = {key: v.detach().requires_grad_() for key, v in scores.items()}
        weights = {key: v.softmax(0) for key, v in leaves.items()}
        logits = through_encoder(model, slow_mixed(own, vector, weights))
        if settings.loss == "kl":
            gain = slow_kl(target, logits)
        else:
            gain = torch.nn.functional.cross_entropy(logits, BATCH["labels"], reduction="sum")
        entropy = sum(-(w * w.log()).sum() for w in weights.values())
        loss = -gain + settings.entropy_weight * entropy / divisor
        slopes = torch.autograd.grad(loss, list(leaves.values()))
        for (key, v), slope in zip(scores.items(), slopes, strict=True):
            g = slope + settings.weight_decay * v
            m, s = moments[key]
            m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
            moments[key] = m, s
            up = (m / (1 - 0.9**step)) / ((s / (1 - 0.999**step)).sqrt() + 1e-8)
            scores[key] = v - settings.learning_rate * up
    return {key: v.softmax(0) for key, v in scores.items()}


@pytest.mark.parametrize(
    "settings",
    [{}, {"loss": "ce"}, {"entropy_norm": "mean", "learning_rate": 0.1, "weight_decay": 0.1}, {"steps": 1}],
    ids=str,
)
def test_the_weights_are_those_of_the_slow_transcription(settings: Any) -> None:
    model = tiny_bert(initializer_range=0.5).train()
    hull = SynonymHull(**settings)
    torch.manual_seed(1)
    found = HullClimber(hull, model).worst(caller(model), BATCH)
    torch.manual_seed(1)
    start = torch.randn(6, 8, 10, dtype=torch.float64)
    expected = slow_worst(model.eval(), hull, start)
    assert len(expected) == 6 + 4  # texts of 3 and 4 tokens have no second word
    for (row, first), weights in expected.items():
        torch.testing.assert_close(found[row, first, : len(weights)], weights, rtol=0, atol=1e-9)
        assert not found[row, first, len(weights) :].any()


def test_the_trained_pass_is_that_of_the_slow_transcription_with_its_gradients() -> None:
    """Equation 2 of RIFT with dropout: each choice has one of its own, and gradients reach all embeddings."""
    model = tiny_bert(dropout=0.2).train()
    climber = HullClimber(SynonymHull(steps=3), model)
    call = caller(model)
    torch.manual_seed(2)
    clean = call(BATCH)
    view = climber.view(call, BATCH, clean)
    loss = clean.loss + 10 * slow_kl(clean.logits, view.logits) / 6
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters)

    torch.manual_seed(2)
    slow_clean = model(**PLAIN)
    model.eval()
    weights = slow_worst(model, SynonymHull(steps=3), torch.randn(6, 8, 10, dtype=torch.float64))
    model.train()
    drawn = model.bert.embeddings(BATCH[SUBSTITUTES]["tokens"].flatten(0, 1))  # in one go, as its dropout is drawn
    layers = drawn.unflatten(0, (6, -1)).unbind(1)

    def vector(row: int, place: int, slot: int, token: int) -> Tensor:
        if slot == 0:
            return own[row, place]
        found = BATCH[SUBSTITUTES]
        (layer,) = [
            i
            for i in range(len(layers))
            if (found["slots"][row, i, place], found["tokens"][row, i, place]) == (slot, token)
        ]
        return layers[layer][row, place]

    own = model.bert.embeddings(BATCH["input_ids"])
    logits = through_encoder(model, slow_mixed(own, vector, weights))
    torch.testing.assert_close(view.logits, logits, rtol=0, atol=1e-9)
    slow = slow_clean.loss + 10 * slow_kl(slow_clean.logits, logits) / 6
    for name, one, other in zip(names, found, torch.autograd.grad(slow, parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9, msg=name)


def test_without_substitutes_the_view_is_the_input() -> None:
    model = tiny_bert(dropout=0.0).train()
    nothing = {"place": [], "first": [], "layer": [], "slot": [], "token": [], "share": []}
    batch = SubstituteCollator(default_collate)([{**PaddedData()[i], SUBSTITUTES: nothing} for i in range(6)])
    climber = HullClimber(SynonymHull(), model)
    clean = caller(model)(batch)
    view = climber.view(caller(model), batch, clean)
    assert torch.equal(view.logits, clean.logits)
    assert torch.equal(climber.worst(caller(model), batch)[..., 0], torch.ones(6, 8, dtype=torch.float64))


def test_choices_beyond_the_slots_count_for_nothing() -> None:
    """Data may be aligned with more slots than the recipe has: only the first, which are the best, are mixed."""
    model = tiny_bert(initializer_range=0.5, dropout=0.0).train()

    def first_ones(row: int) -> dict[str, Any]:
        columns = DATA[row][SUBSTITUTES]
        inside = [i for i, slot in enumerate(columns["slot"]) if slot < 2]
        return {**DATA[row], SUBSTITUTES: {key: [values[i] for i in inside] for key, values in columns.items()}}

    fewer = SubstituteCollator(default_collate)([first_ones(i) for i in range(6)])
    views = []
    for batch in (BATCH, fewer):
        torch.manual_seed(0)
        climber = HullClimber(SynonymHull(slots=2, steps=3), model)
        views.append(climber.view(caller(model), batch, NOTHING).logits)
    torch.testing.assert_close(*views, rtol=0, atol=1e-12)
    assert (views[0] - model(**PLAIN).logits).abs().max() > 1e-3


def test_a_text_without_any_token_gives_numbers() -> None:
    mask = BATCH["attention_mask"].clone()
    mask[0] = 0
    climber = HullClimber(SynonymHull(), tiny_bert())
    assert climber._initial({**BATCH, "attention_mask": mask}, SubstituteMixture(BATCH, 10).choices()).isfinite().all()


def test_weights_sum_to_one_and_are_zero_where_there_is_no_choice() -> None:
    model = tiny_bert().train()
    weights = HullClimber(SynonymHull(), model).worst(caller(model), BATCH)
    choices = SubstituteMixture(BATCH, 10).choices()
    torch.testing.assert_close(weights.sum(2), torch.ones(6, 8, dtype=torch.float64))
    assert not weights[~choices].any() and (weights[choices] > 0).all()
    assert choices.sum(2)[0].tolist() == [1, 4, 1, 1, 1, 1, 1, 1]
    assert choices.sum(2)[5].tolist() == [1, 4, 1, 3, 3, 1, 1, 1]


def test_search_leaves_the_model_as_it_was() -> None:
    model = tiny_bert().train()
    model.bert.pooler.eval()
    HullClimber(SynonymHull(), model).worst(caller(model), BATCH)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.bert.pooler.training and model.bert.encoder.training and model.training


def test_the_divergence_grows_with_the_steps() -> None:
    model = tiny_bert(initializer_range=0.5, dropout=0.0).train()

    def divergence(**settings: Any) -> float:
        torch.manual_seed(0)
        view = HullClimber(SynonymHull(**settings), model).view(caller(model), BATCH, NOTHING)
        return slow_kl(model(**PLAIN).logits, view.logits).item()

    assert divergence(steps=10) > 1.2 * divergence(steps=1) > 0


def test_a_view_can_be_had_again_with_other_dropout() -> None:
    model = tiny_bert(dropout=0.0).train()
    climber = HullClimber(SynonymHull(), model)
    view = climber.view(caller(model), BATCH, NOTHING)
    assert torch.equal(climber.again(caller(model), BATCH).logits, view.logits)
    model = tiny_bert(dropout=0.3).train()
    climber = HullClimber(SynonymHull(), model)
    view = climber.view(caller(model), BATCH, NOTHING)
    assert not torch.equal(climber.again(caller(model), BATCH).logits, view.logits)


@pytest.mark.parametrize("at", ["encoder", "words"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_weight_on_one_substitute_is_the_text_that_has_it(architecture: Any, at: Any) -> None:
    torch.manual_seed(0)
    model = architecture().double().eval()
    data = Substituted(PaddedEosData(model, per_token="Token" in type(model).__name__))
    batch = SubstituteCollator(default_collate)([data[i] for i in range(6)])
    climber = HullClimber(SynonymHull(at=at), model)
    scores = torch.zeros(6, 8, 10, dtype=torch.float64)
    scores[:, 1, 2] = 1000.0
    scores[:, 3, 0] = 1000.0
    climber._weights = choice_weights(scores, SubstituteMixture(batch, 10).choices())
    plain = {key: value for key, value in batch.items() if key != SUBSTITUTES}
    ids = plain["input_ids"].clone()
    ids[:, 1] = torch.tensor([data[i][SUBSTITUTES]["token"][1] for i in range(6)])
    if model.config.is_encoder_decoder and "Token" not in type(model).__name__:
        # T5's decoder reads the text once more; what is mixed is the encoder's input.
        plain["decoder_input_ids"] = model._shift_right(plain["input_ids"])
    expected = model(**{**plain, "input_ids": ids}).logits
    torch.testing.assert_close(climber.again(caller(model), batch).logits, expected, rtol=0, atol=1e-9)
    assert (model(**plain).logits - expected).abs().max() > 1e-7


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return (TinyData()[i] for i in range(8))


def test_a_stream_without_substitutes_is_refused_at_its_first_batch(tmp_path: Any) -> None:
    trainer = RobustTrainer(
        model=tiny_bert(), args=arguments(tmp_path, max_steps=1), train_dataset=Stream(), recipe="adv-base"
    )
    with pytest.raises(RunError, match=r"the batch does not say by which.*with_substitutes"):
        trainer.train()


def test_training_data_without_substitutes_are_refused(tmp_path: Any) -> None:
    with pytest.raises(RecipeError, match=r"replaces words.*with_substitutes"):
        RobustTrainer(model=tiny_bert(), args=arguments(tmp_path), train_dataset=TinyData(), recipe="adv-base")


# Starting from the last epoch's scores.


def warm(model: Any, **settings: Any) -> HullClimber:
    return HullClimber(SynonymHull(**settings), model)


def test_the_ascent_goes_on_where_it_ended_in_the_last_epoch() -> None:
    model = tiny_bert(initializer_range=0.5).eval()
    climber = warm(model, steps=4, warm_steps=2, learning_rate=0.1)
    choices = SubstituteMixture(BATCH, 10).choices()
    torch.manual_seed(0)
    cold, steps = climber._start(BATCH, choices)
    assert steps == 4, "nothing is known yet"
    first = climber.worst(caller(model), BATCH)
    start, steps = climber._start(BATCH, choices)
    assert steps == 2
    several = choices.sum(-1) > 1
    torch.testing.assert_close(choice_weights(start, choices)[several], first[several], rtol=0, atol=2e-3)
    assert not torch.allclose(start[several], cold[several], atol=1e-2)
    # The same texts in another order.
    rows = [DATA[i] for i in (3, 0, 5, 1, 4, 2)]
    other = SubstituteCollator(default_collate)(rows)
    moved, steps = climber._start(other, SubstituteMixture(other, 10).choices())
    assert steps == 2
    back = torch.tensor([1, 3, 5, 0, 4, 2])
    assert torch.equal(moved[back][several], start[several])


def test_one_unknown_text_is_enough_for_all_steps() -> None:
    model = tiny_bert()
    climber = warm(model, steps=3, warm_steps=1)
    few = SubstituteCollator(default_collate)([DATA[i] for i in range(5)])
    climber.worst(caller(model), few)
    assert climber._start(few, SubstituteMixture(few, 10).choices())[1] == 1
    assert climber._start(BATCH, SubstituteMixture(BATCH, 10).choices())[1] == 3


def test_one_more_step_is_worse_for_the_model_than_one_step() -> None:
    model = tiny_bert(initializer_range=0.5).eval()
    call = caller(model)
    climber = warm(model, steps=10, warm_steps=1)
    climber.view(call, BATCH, NOTHING)
    kept = functional_kl(call, climber.view(call, BATCH, NOTHING))
    assert kept > functional_kl(call, warm(model, steps=1).view(call, BATCH, NOTHING))


def functional_kl(call: Any, output: Output) -> float:
    from rosewood.tensors.divergences import forward_kl

    return float(forward_kl(call(PLAIN).logits, output.logits).detach())


@pytest.mark.parametrize("save", [4, 6])
def test_kept_scores_go_on_bit_for_bit_after_a_resume(save: int, tmp_path: Any) -> None:
    recipe = load_recipe("adv-base", {"perturbation.warm_steps": 1})
    settings = {"save_strategy": "steps", "save_steps": save, "data": TinyData(12), "max_steps": 9}
    whole = trained(recipe, tmp_path, model=tiny_bert(dtype=torch.float32), **settings)
    other = tiny_bert(dtype=torch.float32, seed=7)
    resumed = trained(recipe, tmp_path, model=other, resume=str(tmp_path / f"checkpoint-{save}"), **settings)
    expected = weights_of(whole.model)
    assert not list(differing(expected, weights_of(resumed.model)))
    cold = trained("adv-base", tmp_path, model=tiny_bert(dtype=torch.float32), **settings)
    assert list(differing(expected, weights_of(cold.model)))


def test_kept_scores_are_counted_and_explained() -> None:
    recipe = load_recipe("adv-base", {"perturbation.warm_steps": 2})
    assert str(recipe.cost()) == "5F+2X+2B" and "scores of all words" in recipe.memory()
    lines = recipe.perturbation.explain(recipe.all_stages()[0])  # type: ignore[union-attr]
    assert lines[-1] == "from the second epoch on 2 steps, from the last epoch's v"

"""Which words change, and to what: against slow transcriptions, at the ends of every range, on every kind of batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import default_collate

from rosewood.errors import RecipeError, RunError
from rosewood.perturbations.mixture import Mixture
from rosewood.perturbations.substitution import Substitution
from rosewood.perturbations.typing import Typing
from rosewood.protocol import Output, Progress, Run
from rosewood.recipe import build_recipe, load_recipe
from rosewood.words.alignment import SubstituteCollator, stretched
from rosewood.words.changes import WordChanger, collate_changes, column_of, example_losses
from slow_methods import PaddedData
from tiny import TinyData, arguments, tiny_bert, trained
from tiny_substitutes import Substituted, made_up_changes

COLUMNS = (column_of("substitution"), column_of("typing"))
DATA = Substituted(PaddedData(), COLUMNS)
BATCH = SubstituteCollator(default_collate, dict.fromkeys(COLUMNS, collate_changes))([DATA[i] for i in range(6)])
NOTHING = Output(torch.zeros(()), torch.zeros(6, 2))
STAGE: Any = None


class Calls:
    """Runs the model and remembers what it was given."""

    def __init__(self, model: Any) -> None:
        self.model, self.seen = model, []

    def __call__(self, batch: Any, model: Any = None) -> Output:
        inputs = {key: value for key, value in batch.items() if isinstance(value, Tensor)}
        self.seen.append(inputs)
        found = self.model(**inputs)
        return Output(found.loss, found.logits)


def changer(model: Any, settings: Any) -> WordChanger:
    return settings.start(Run(model, 10, STAGE))


def texts(batch: Any) -> list[list[int]]:
    return [ids[mask.bool()].tolist() for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]


def slow_words(row: int) -> list[tuple[list[int], list[list[int]]]]:
    """Places and choices of the words of a text that can change."""
    return made_up_changes(texts(BATCH)[row], COLUMNS[0])


def slow_changed(row: int, chosen: dict[int, list[int]]) -> list[int]:
    """The text with the words that begin at these places replaced by these tokens."""
    found: list[int] = []
    words = {places[0]: len(places) for places, _ in slow_words(row)}
    place, own = 0, texts(BATCH)[row]
    while place < len(own):
        found += chosen.get(place, [own[place]])
        place += words[place] if place in chosen else 1
    return found


def slow_random(share: float, draws: Tensor) -> list[list[int]]:
    """`draws` has two numbers for each place of each text."""
    found = []
    for row in range(6):
        chosen = {}
        for places, choices in slow_words(row):
            chance, which = draws[row, 0, places[0]], draws[row, 1, places[0]]
            if chance < share:
                chosen[places[0]] = choices[int(which * len(choices))]
        found.append(slow_changed(row, chosen))
    return found


def test_random_changes_are_those_of_the_slow_transcription() -> None:
    model = tiny_bert()
    for seed in range(20):
        call = Calls(model)
        torch.manual_seed(seed)
        changer(model, Substitution(share=0.5)).view(call, BATCH, NOTHING)
        torch.manual_seed(seed)
        assert texts(call.seen[0]) == slow_random(0.5, torch.rand(6, 1, 2, 8)[:, 0])


def test_the_worst_of_some_texts_is_the_one_with_the_highest_loss() -> None:
    model = tiny_bert(initializer_range=0.5, dropout=0.3).train()
    call = Calls(model)
    torch.manual_seed(4)
    changer(model, Substitution(pick="worst_of", candidates=5, share=0.7)).view(call, BATCH, NOTHING)
    torch.manual_seed(4)
    draws = torch.rand(6, 5, 2, 8)
    tried = [slow_random(0.7, draws[:, i]) for i in range(5)]
    assert all(module.training for module in model.modules()), "as it was before the search"
    assert len(call.seen) == 2 and len(call.seen[0]["input_ids"]) == 30, "one pass for all, and the one that trains"
    model.eval()
    for row, found in enumerate(texts(call.seen[1])):
        with torch.no_grad():
            logits = [model(input_ids=torch.tensor([each[row]])).logits for each in tried]
        losses = [float(functional.cross_entropy(each, BATCH["labels"][row : row + 1])) for each in logits]
        assert found == tried[losses.index(max(losses))][row]


def slow_gains(model: Any) -> list[list[list[float]]]:
    """To first order, what each choice of each word of each text adds to the loss."""
    table = model.bert.embeddings.word_embeddings.weight.detach()
    vectors = table[BATCH["input_ids"]].clone().requires_grad_()
    loss = model(inputs_embeds=vectors, attention_mask=BATCH["attention_mask"], labels=BATCH["labels"]).loss
    slope = torch.autograd.grad(loss * 6, vectors)[0]

    def gain(row: int, places: list[int], choice: list[int]) -> float:
        there = sum(slope[row, places[j]] @ table[token] * share for j, token, share in stretched(choice, len(places)))
        here = sum(slope[row, place] @ vectors[row, place].detach() for place in places)
        return float(there - here)

    return [[[gain(row, places, each) for each in choices] for places, choices in slow_words(row)] for row in range(6)]


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_the_gradient_picks_what_the_slow_transcription_picks(share: float) -> None:
    model = tiny_bert(initializer_range=0.5, dropout=0.3).train()
    call = Calls(model)
    changer(model, Substitution(pick="gradient", share=share)).view(call, BATCH, NOTHING)
    model.eval()
    gains = slow_gains(model)
    assert len({round(gain, 6) for row in gains for word in row for gain in word}) > 20
    for row, found in enumerate(texts(call.seen[-1])):
        words = slow_words(row)
        order = sorted(range(len(words)), key=lambda at: -max(gains[row][at]))
        chosen = {}
        for at in order[: max(1, -(-int(10 * share) * len(words) // 10))]:
            best = max(gains[row][at])
            if best > 0:
                chosen[words[at][0][0]] = words[at][1][gains[row][at].index(best)]
        assert found == slow_changed(row, chosen)


def test_gains_are_derivatives_of_the_loss_where_lengths_agree() -> None:
    """Along the line from a word of one token to another one."""
    model = tiny_bert(initializer_range=0.5).eval()
    found = changer(model, Substitution(pick="gradient"))._gains(Calls(model), BATCH, BATCH[COLUMNS[0]])
    table = model.bert.embeddings.word_embeddings.weight.detach()
    places, choices = slow_words(0)[0]
    assert len(places) == len(choices[0]) == 1
    vectors = table[BATCH["input_ids"]]
    step = torch.zeros_like(vectors)
    step[0, places[0]] = table[choices[0][0]] - vectors[0, places[0]]

    def loss(size: float) -> float:
        inputs = {"attention_mask": BATCH["attention_mask"], "labels": BATCH["labels"]}
        with torch.no_grad():
            return float(model(inputs_embeds=vectors + size * step, **inputs).loss * 6)

    assert float(found[0]) == pytest.approx((loss(1e-6) - loss(-1e-6)) / 2e-6, rel=1e-5)


@pytest.mark.parametrize("pick", ["random", "worst_of"])
def test_a_share_of_0_changes_nothing_and_of_1_every_word_that_can_change(pick: Any) -> None:
    model = tiny_bert()
    for share, changed in ((0.0, 0), (1.0, 6)):
        call = Calls(model)
        changer(model, Substitution(pick=pick, share=share)).view(call, BATCH, NOTHING)
        assert sum(a != b for a, b in zip(texts(call.seen[-1]), texts(BATCH), strict=True)) == changed


def test_every_text_has_a_strength_of_its_own_when_typing() -> None:
    model = tiny_bert()
    torch.manual_seed(0)
    shares = torch.stack([Typing(share=0.5).shares(BATCH) for _ in range(200)])
    assert shares.min() >= 0 and 0.4 < shares.max() <= 0.5
    assert shares.std(0).min() > 0.1 and len(shares[0].unique()) == 6
    call = Calls(model)
    changer(model, Typing(share=1.0)).view(call, BATCH, NOTHING)
    assert texts(call.seen[0]) != texts(BATCH)


def test_the_same_text_again_with_another_dropout() -> None:
    model = tiny_bert(dropout=0.5).train()
    call = Calls(model)
    perturber = changer(model, Substitution(share=1.0))
    first, second = perturber.view(call, BATCH, NOTHING), perturber.again(call, BATCH)
    assert torch.equal(call.seen[0]["input_ids"], call.seen[1]["input_ids"])
    assert not torch.equal(first.logits, second.logits)


def test_texts_without_anything_to_change_stay() -> None:
    short = [{**DATA[i], "input_ids": torch.tensor([5, 0]), "attention_mask": torch.tensor([1, 0])} for i in range(2)]
    rows = Substituted([{k: v for k, v in row.items() if k not in COLUMNS} for row in short], COLUMNS)
    collate = SubstituteCollator(default_collate, dict.fromkeys(COLUMNS, collate_changes))
    batch = collate([rows[i] for i in range(2)])
    for pick in ("random", "worst_of", "gradient"):
        call = Calls(tiny_bert())
        changer(call.model, Substitution(pick=pick)).view(call, batch, NOTHING)  # type: ignore[arg-type]
        assert texts(call.seen[-1]) == [[5], [5]]


def test_losses_of_examples_for_classes_several_labels_and_numbers() -> None:
    logits, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    found = example_losses(Output(torch.zeros(()), logits), labels)
    torch.testing.assert_close(found.mean(), functional.cross_entropy(logits, labels))
    several = torch.randint(0, 2, (4, 3)).float()
    pairs = torch.stack([logits, torch.zeros_like(logits)], dim=-1)
    found = example_losses(Output(torch.zeros(()), pairs), several)
    torch.testing.assert_close(found.mean(), functional.binary_cross_entropy_with_logits(logits, several))
    numbers = torch.randn(4)
    found = example_losses(Output(torch.zeros(()), logits[:, :1]), numbers)
    torch.testing.assert_close(found.mean(), functional.mse_loss(logits[:, 0], numbers))


def test_what_cannot_work_is_refused(tmp_path: Any) -> None:
    model = tiny_bert()
    plain = {key: value for key, value in BATCH.items() if key not in COLUMNS}
    with pytest.raises(RunError, match=r"substitution changes words.*'substitution_changes'.*rosewood\.with_changes"):
        changer(model, Substitution()).view(Calls(model), plain, NOTHING)
    from rosewood.training.trainer import RobustTrainer

    with pytest.raises(RecipeError, match=r"add the column 'substitution_changes' with rosewood\.with_changes"):
        RobustTrainer(model=model, args=arguments(tmp_path), train_dataset=TinyData(), recipe="augment")
    from architectures import t5_encoder

    problem = Substitution().problems_with(t5_encoder())
    assert len(problem) == 1 and "expected a model that classifies whole texts, got T5ForTokenClass" in problem[0]


# The mixture.


def test_a_mixture_draws_one_perturbation_a_step_in_the_given_proportions() -> None:
    model = tiny_bert()
    mixture = Mixture(of=(Substitution(share=1.0), Typing(share=1.0)), weights=(3.0, 1.0))
    mixer = mixture.start(Run(model, 10, STAGE, seed=5))
    names = []
    for step in range(400):
        mixer.begin(Progress(step, 400))
        names.append(mixer._current.name)
        mixer.begin(Progress(step, 400, micro_batch=1))
        assert mixer._current.name == names[-1], "all of a step alike"
    assert 0.68 < names.count("substitution") / 400 < 0.82
    other = mixture.start(Run(model, 10, STAGE, seed=6))
    drawn = []
    for step in range(400):
        other.begin(Progress(step, 400))
        drawn.append(other._current.name)
    assert drawn != names


def test_a_mixture_goes_round_through_yaml_with_all_its_settings(tmp_path: Any) -> None:
    recipe = load_recipe("augment", {"perturbation.of.1.share": 0.25})
    assert isinstance(recipe.perturbation, Mixture)
    assert recipe.perturbation.of[1] == Typing(pick="worst_of", candidates=4, share=0.25)
    plain = recipe.to_dict()["perturbation"]
    assert plain["of"][1]["kinds"][0] == "swap" and plain["of"][0]["name"] == "substitution"
    assert build_recipe(recipe.to_dict()) == recipe
    assert {part.name for part in recipe.perturbations()} == {"substitution", "typing"}
    assert set(recipe.columns()) == set(COLUMNS)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"of": ["dropout", "weight_ascent"]}, "cannot have weight_ascent in it"),
        ({"of": ["noise", {"name": "mixture"}]}, "cannot have mixture in it"),
        ({"of": ["noise", "dropout"], "weights": [1.0]}, "expected one for each of 2, got 1"),
        ({"of": ["noise", "nois"]}, "unknown perturbation 'nois'"),
        ({"of": ["noise", {"name": "typing", "shar": 1}]}, "no such setting"),
        ({"of": ["noise"]}, "at least 2 items"),
    ],
)
def test_mixtures_that_make_no_sense_are_refused(settings: Any, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        build_recipe({"objective": "consistency", "perturbation": {"name": "mixture", **settings}})


def test_a_mixture_of_other_perturbations_trains(tmp_path: Any) -> None:
    recipe = build_recipe({"objective": "consistency", "perturbation": {"name": "mixture", "of": ["noise", "dropout"]}})
    run = trained(recipe, tmp_path, max_steps=4, logging_steps=1)
    assert all("loss_mixture_kl" in entry for entry in run.state.log_history if "loss" in entry)

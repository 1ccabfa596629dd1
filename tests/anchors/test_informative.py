"""The information term: a slow transcription, the bound of the paper's lemma, its teacher, and where its heads are."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate
from transformers import BertForSequenceClassification, TrainerCallback

from architectures import t5_encoder
from replay import Batch, replay, same_weights
from rosewood.anchors.informative import ClassWeights, InformativeTether, Projections, info_nce
from rosewood.errors import RecipeError
from rosewood.models.features import row_keys
from rosewood.models.parameters import candidate_names, pretrained_names
from rosewood.protocol import is_attached
from rosewood.recipe import Recipe, build_recipe, load_recipe
from rosewood.training.trainer import RobustTrainer
from tiny import Recording, TinyData, arguments, differing, tiny_bert, trained, weights
from tiny_lora import moved, tiny_lora
from two_processes import in_two_processes

Over = Literal["teacher", "student"]
SMALL = {"hidden": 12, "out": 8, "weight": 2.0}


def recipe(own_pass: bool = False, **settings: Any) -> Recipe:
    """Cross-entropy and the term; R-Drop and the term if that has a pass of its own."""
    spec: dict[str, Any] = {"anchors": [{"name": "informative", "own_pass": own_pass, **SMALL, **settings}]}
    if own_pass:
        spec |= {"objective": "consistency", "perturbation": "dropout"}
    return build_recipe({"name": "told"} | spec)


# The loss.


def slow_loss(
    student: Tensor,
    teacher: Tensor,
    labels: list[int],
    f: Callable[[int, Tensor, Tensor], Tensor],
    over: Over,
    weights: str = "frequency",
) -> Tensor:
    """Eq. 10 without its constant, example by example; p(y) is the share of a class, or the same for all."""
    by_class = []
    for y in sorted(set(labels)):
        members = [i for i, label in enumerate(labels) if label == y]
        losses = []
        for i in members:
            pair = f(y, student[i], teacher[i]).exp()
            if over == "teacher":
                rivals = [f(y, student[i], teacher[j]).exp() for j in members]
            else:
                rivals = [f(y, student[j], teacher[i]).exp() for j in members]
            losses.append(-(pair / sum(rivals)).log())
        share = len(members) / len(labels) if weights == "frequency" else 1 / len(set(labels))
        by_class.append(share * sum(losses) / len(members))
    return sum(by_class)  # type: ignore[return-value]


class SlowHeads(nn.Module):
    """Two networks of two linear layers for each class, with the numbers of the fast ones."""

    def __init__(self, fast: Any) -> None:
        super().__init__()
        self.sides = nn.ModuleList(
            nn.ModuleList(self._network(fast[side], y) for y in range(len(fast[side].first_weight)))
            for side in ("student", "teacher")
        )

    @staticmethod
    def _network(fast: Projections, y: int) -> nn.Module:
        layers = []
        for weight, bias in ((fast.first_weight, fast.first_bias), (fast.second_weight, fast.second_bias)):
            layer = nn.Linear(*weight.shape[1:], dtype=weight.dtype)
            layer.weight.data, layer.bias.data = weight[y].T.detach().clone(), bias[y, 0].detach().clone()
            layers.append(layer)
        return nn.Sequential(layers[0], nn.ReLU(), layers[1])

    def score(self, y: int, s: Tensor, t: Tensor, temperature: float = 0.2) -> Tensor:
        a, b = self.sides[0][y](s), self.sides[1][y](t)
        return (a @ b) / (a.norm() * b.norm()) / temperature


@pytest.mark.parametrize("over", ["teacher", "student"])
@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("by", ["frequency", "equal"])
def test_the_loss_against_a_slow_transcription(by: ClassWeights, classes: int, over: Over) -> None:
    generator = torch.Generator().manual_seed(3)
    student, teacher = torch.randn(2, 11, 6, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 2, 1, 0, 0, 1, 2, 0, 1, 1, 0]) % classes
    fast = nn.ModuleDict({side: Projections(classes, 6, 5, 4, generator, student) for side in ("student", "teacher")})
    slow = SlowHeads(fast)
    student, other = student.clone().requires_grad_(), student.clone().requires_grad_()
    found = info_nce(fast["student"](student, labels), fast["teacher"](teacher, labels), labels, 0.2, over, by)
    expected = slow_loss(other, teacher, labels.tolist(), slow.score, over, by)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    found.backward()
    expected.backward()
    torch.testing.assert_close(student.grad, other.grad, rtol=0, atol=1e-9)
    for i, side in enumerate(("student", "teacher")):
        gradients = torch.stack([network[0].weight.grad.T for network in slow.sides[i]])
        torch.testing.assert_close(fast[side].first_weight.grad, gradients, rtol=0, atol=1e-9)


@pytest.mark.parametrize("over", ["teacher", "student"])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_orthonormal_features(over: Over, count: int) -> None:
    same = torch.eye(count, 9, dtype=torch.float64)
    found = info_nce(same, same, torch.zeros(count, dtype=torch.long), 0.2, over).item()
    assert found == pytest.approx(-math.log(math.exp(5) / (math.exp(5) + count - 1)), abs=1e-12)


@pytest.mark.parametrize(("by", "weight"), [("frequency", 2 / 3), ("equal", 1 / 2)])
def test_alone_in_its_class_an_example_adds_nothing(by: ClassWeights, weight: float) -> None:
    rows = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    other = torch.randn(5, 4, dtype=torch.float64)
    alone = info_nce(rows, other, torch.arange(5), 0.2, "teacher", by)
    assert alone.item() == 0
    alone.backward()
    assert not rows.grad.any()
    pair = info_nce(rows[:2], other[:2], torch.zeros(2, dtype=torch.long), 0.2, "teacher")
    three = info_nce(rows[:3], other[:3], torch.tensor([0, 0, 1]), 0.2, "teacher", by)
    torch.testing.assert_close(three, pair * weight)


def test_both_axes_agree_where_the_scores_are_symmetric_and_not_elsewhere() -> None:
    one, other = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels = torch.tensor([0, 1, 0, 1, 0, 0])
    torch.testing.assert_close(info_nce(one, one, labels, 0.2, "teacher"), info_nce(one, one, labels, 0.2, "student"))
    apart = [info_nce(one, other, labels, 0.2, over).item() for over in ("teacher", "student")]
    assert abs(apart[0] - apart[1]) > 1e-3


def test_a_vector_of_zeros_and_half_precision_give_numbers() -> None:
    rows = torch.zeros(3, 4, requires_grad=True)
    info_nce(rows, torch.randn(3, 4), torch.zeros(3, dtype=torch.long), 0.2, "teacher").backward()
    assert rows.grad.isfinite().all()
    half = torch.randn(3, 4, dtype=torch.bfloat16)
    assert info_nce(half, half, torch.zeros(3, dtype=torch.long), 0.2, "teacher").dtype == torch.float32


# The lemma: on a distribution of three values of s, three of t and two classes, all expectations are finite sums.

JOINT = torch.tensor(
    [[[0.30, 0.05, 0.02], [0.03, 0.20, 0.10], [0.05, 0.05, 0.20]], [[0.11, 0.02, 0.20], [0.25, 0.08, 0.04], [0.1] * 3]],
    dtype=torch.float64,
)


def critics(joint: Tensor) -> dict[str, Tensor]:
    optimal = (joint / (joint.sum(0) * joint.sum(1, keepdim=True))).log()
    generator = torch.Generator().manual_seed(1)
    return {
        "optimal": optimal,
        "flat": torch.zeros(3, 3, dtype=torch.float64),
        "timid": optimal / 3,
        "bold": 3 * optimal,
        "random": torch.randn(3, 3, generator=generator, dtype=torch.float64),
        "wrong": -optimal,
    }


def expected_loss(joint: Tensor, critic: Tensor, count: int, over: Over) -> float:
    """The mean of the loss over all batches of `count` pairs; unit vectors whose cosines are the critic's scores."""
    temperature = 0.25 / critic.abs().max().clamp(min=1).item()
    scores = critic * temperature
    students = torch.cat([scores, (1 - scores.square().sum(1, keepdim=True)).sqrt()], 1)
    teachers = torch.eye(3, 4, dtype=torch.float64)
    labels, total = torch.zeros(count, dtype=torch.long), 0.0
    for batch in itertools.product(itertools.product(range(3), repeat=2), repeat=count):
        s, t = [pair[0] for pair in batch], [pair[1] for pair in batch]
        probability = joint[s, t].prod().item()
        total += probability * info_nce(students[s], teachers[t], labels, temperature, over).item()
    return total


@pytest.mark.parametrize("over", ["teacher", "student"])
def test_the_loss_bounds_the_conditional_information_from_below(over: Over) -> None:
    joints = [joint / joint.sum() for joint in JOINT]
    optimal = [critics(joint)["optimal"] for joint in joints]
    information = sum((joint * best).sum().item() for joint, best in zip(joints, optimal, strict=True)) / 2
    assert information > 0.1
    for name in critics(joints[0]):
        losses = [expected_loss(joint, critics(joint)[name], 2, over) for joint in joints]
        assert math.log(2) - sum(losses) / 2 <= information + 1e-12, name
    best = {
        count: math.log(count) - sum(expected_loss(j, o, count, over) for j, o in zip(joints, optimal, strict=True)) / 2
        for count in (1, 2, 3)
    }
    assert best[1] == pytest.approx(0, abs=1e-12)
    assert 0 < best[2] < best[3] < information, "more examples make the bound tighter"
    assert expected_loss(joints[0], critics(joints[0])["flat"], 3, over) == pytest.approx(math.log(3))


# The training.


def pooled(model: Any, batch: Batch, feature: str) -> Tensor:
    output = model.bert(**{key: value for key, value in batch.items() if key != "labels"})
    return output.pooler_output if feature == "pooler" else output.last_hidden_state[:, 0]


class Together(nn.Module):
    """A model and slow heads, as the replay wants to see them."""

    def __init__(self, trainer: Recording) -> None:
        super().__init__()
        self.model, self.heads = tiny_bert(), SlowHeads(trainer._beside["informative"])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"own_pass": True, "normalise_over": "student", "class_weights": "equal"},
        {"conditional": False, "feature": "token", "temperature": 0.5},
        {"cache": False, "batches": "one_class"},
    ],
    ids=str,
)
def test_a_training_run(settings: dict[str, Any], tmp_path: Path) -> None:
    built = recipe(**settings)
    anchor: Any = built.anchors[0]
    trainer = Recording(model=tiny_bert(), args=arguments(tmp_path), train_dataset=TinyData(24), recipe=built)
    slow, teacher = Together(trainer), tiny_bert().eval()
    trainer.train()

    def backward(batch: Batch, step: int, micro_batch: int) -> None:
        output = slow.model(**batch, output_hidden_states=True)
        if anchor.own_pass:
            second = slow.model(**batch)
            p, q = output.logits.log_softmax(-1), second.logits.log_softmax(-1)
            loss = (output.loss + second.loss) / 2 + 0.5 * ((p.exp() - q.exp()) * (p - q)).sum(-1).mean()
            student = pooled(slow.model, batch, anchor.feature)
        else:
            loss, last = output.loss, output.hidden_states[-1]
            student = slow.model.bert.pooler(last) if anchor.feature == "pooler" else last[:, 0]
        with torch.no_grad():
            target = pooled(teacher, batch, anchor.feature)
        labels = batch["labels"].tolist() if anchor.conditional else [0] * len(target)

        def score(y: int, s: Tensor, t: Tensor) -> Tensor:
            return slow.heads.score(y, s, t, anchor.temperature)

        # The heads of a class that is not there have a gradient of 0, not none: momentum and decay go on.
        term = slow_loss(student, target, labels, score, anchor.normalise_over, anchor.class_weights)
        nothing = 0 * sum(parameter.sum() for parameter in slow.heads.parameters())
        (loss + 2.0 * term + nothing).backward()

    replay(trainer, slow, backward)
    same_weights(trainer.model, slow.model)
    for i, side in enumerate(("student", "teacher")):
        found: Any = trainer._beside["informative"][side]
        expected = torch.stack([network[2].weight.T for network in slow.heads.sides[i]])
        torch.testing.assert_close(found.second_weight, expected, rtol=0, atol=1e-9)


def tether_of(trainer: RobustTrainer) -> InformativeTether:
    assert trainer._engine is not None
    found = [tether for tether in trainer._engine._run.tethers if isinstance(tether, InformativeTether)]
    return found[0]


@pytest.mark.parametrize("anchors", [[], [{"name": "mixout", "probability": 0.5}]], ids=["alone", "beside mixout"])
def test_the_teacher_is_the_pretrained_model_and_stays_so(anchors: list[Any], tmp_path: Path) -> None:
    spec = recipe().to_dict()
    built = build_recipe(spec | {"anchors": [*anchors, *spec["anchors"]]})
    data = TinyData(16)
    trainer = trained(built, tmp_path, data=data, max_steps=6)
    assert list(differing(weights(tiny_bert()), weights(trainer.model)))
    batch = default_collate([data[i] for i in range(16)])
    with torch.no_grad():
        expected = pooled(tiny_bert().eval(), batch, "pooler")
    tether = tether_of(trainer)
    assert tether._answers is not None
    torch.testing.assert_close(tether._answers.vectors(row_keys(batch)), expected, rtol=0, atol=1e-12)
    assert not list(differing(trainer._pretrained, weights(tiny_bert())))
    assert all(value.grad is None and not value.requires_grad for value in tether.pretrained)


def teacher_passes(model: Any) -> list[int]:
    """Sizes of the batches that a model has seen in eval mode; filled while it trains."""
    sizes: list[int] = []
    model.bert.register_forward_hook(lambda m, args, out: None if m.training else sizes.append(len(out[0])))
    return sizes


def test_after_the_first_epoch_the_teacher_is_not_asked(tmp_path: Path) -> None:
    data = TinyData(16)
    data.ids[5] = data.ids[9]  # a text that comes twice
    counts = {}
    for cache in (True, False):
        model = tiny_bert()
        counts[cache] = teacher_passes(model)
        kept = trained(recipe(cache=cache), tmp_path, model=model, data=data, max_steps=12)
    assert sum(counts[True]) == 15
    assert len(counts[True]) <= 4
    assert counts[False] == [4] * 12
    assert (tmp_path / "_rosewood" / "teacher-0.bin").stat().st_size == 15 * (16 + 16 * 8)
    again = trained(recipe(), tmp_path, data=data, max_steps=12)
    same_weights(again.model, kept.model)


class Stop(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 7:
            raise KeyboardInterrupt


@pytest.mark.parametrize("save_steps", [2, 4, 6])  # within the first epoch, at its end, within the second
@pytest.mark.parametrize("build", [tiny_bert, tiny_lora])
def test_a_resumed_run_is_the_uninterrupted_one(build: Any, save_steps: int, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": save_steps, "max_steps": 10}
    data, built = TinyData(16), recipe()
    whole = trained(built, tmp_path / "whole", model=build(), data=data, **settings)
    args = arguments(tmp_path / "broken", **settings)
    broken = RobustTrainer(model=build(), args=args, train_dataset=data, recipe=built, callbacks=[Stop()])
    with pytest.raises(KeyboardInterrupt):
        broken.train()
    assert not [name for name in weights(broken.model) if is_attached(name)]
    model = build()
    if build is tiny_lora:
        moved(model, size=1.0)  # of the pre-trained model, only what an adapter leaves alone counts
    asked = teacher_passes(model if build is tiny_bert else model.get_base_model())
    checkpoint = str(tmp_path / "broken" / f"checkpoint-{save_steps}")
    resumed = trained(built, tmp_path / "broken", model=model, data=data, resume=checkpoint, **settings)
    assert sum(asked) == max(16 - 4 * save_steps, 0), "what the checkpoint knew is not asked again"
    assert not list(differing(weights(whole.model), weights(resumed.model)))
    assert whole._engine is not None
    assert resumed._engine is not None
    assert not list(differing(whole._engine.state_dict(), resumed._engine.state_dict()))


@pytest.mark.parametrize("damage", ["other bytes", "too short", "gone", "a link"])
def test_a_bad_file_is_never_trusted(damage: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": 4, "max_steps": 6}
    whole = trained(recipe(), tmp_path, data=TinyData(16), **settings)
    file = tmp_path / "_rosewood" / "teacher-0.bin"
    content = file.read_bytes()
    if damage == "other bytes":
        file.write_bytes(content[:500] + b"?" + content[501:])
    elif damage == "too short":
        file.write_bytes(content[:-1])
    else:
        file.unlink()
        if damage == "a link":
            (tmp_path / "elsewhere").write_bytes(content)
            file.symlink_to(tmp_path / "elsewhere")
    model = tiny_bert()
    asked = teacher_passes(model)
    checkpoint = str(tmp_path / "checkpoint-4")
    resumed = trained(recipe(), tmp_path, model=model, data=TinyData(16), resume=checkpoint, **settings)
    assert sum(asked) == 8
    same_weights(resumed.model, whole.model)
    if damage == "a link":
        assert (tmp_path / "elsewhere").read_bytes() == content


def counted(rank: int, folder: Path) -> list[int]:
    model = tiny_bert()
    sizes = teacher_passes(model)
    trained(recipe(), folder / str(rank), model=model, data=TinyData(16), max_steps=6)
    return sizes


def test_two_processes_share_what_their_teachers_say(tmp_path: Path) -> None:
    """Two steps an epoch: in the second one each process meets examples that the other has asked about."""
    for sizes in in_two_processes(counted, tmp_path, tmp_path):
        assert sizes == [4, 4]


# Where the heads are.


def test_the_heads_are_trained_beside_the_model_and_taken_off(tmp_path: Path) -> None:
    class Look(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            beside = [name for name, _ in model.named_parameters() if is_attached(name)]
            assert len(beside) == 8
            assert not set(beside) & {*candidate_names(model), *candidate_names(model, ".*"), *pretrained_names(model)}
            seen.append(weights(model))

    seen: list[dict[str, Tensor]] = []
    trainer = RobustTrainer(
        model=tiny_bert(),
        args=arguments(tmp_path, save_strategy="steps", save_steps=5),
        train_dataset=TinyData(),
        recipe=recipe(),
        callbacks=[Look()],
    )
    trainer.train()
    assert len(seen) == 10
    assert {name for name in differing(seen[0], seen[-1]) if is_attached(name)} == set(seen[0]) - set(
        weights(tiny_bert())
    )
    assert weights(trainer.model).keys() == weights(tiny_bert()).keys()
    trainer.save_model(str(tmp_path / "saved"))
    loaded = BertForSequenceClassification.from_pretrained(tmp_path / "saved", dtype=torch.float64)
    assert not list(differing(weights(trainer.model), weights(loaded)))
    trainer.train()  # goes on with the same heads
    assert not torch.equal(seen[9]["bert.pooler.dense.weight"], seen[19]["bert.pooler.dense.weight"])
    assert weights(trainer.model).keys() == weights(tiny_bert()).keys()


def test_a_model_that_is_made_for_each_training_gets_heads_of_its_own(tmp_path: Path) -> None:
    trainer = RobustTrainer(
        model_init=lambda: tiny_bert(), args=arguments(tmp_path), train_dataset=TinyData(), recipe=recipe()
    )
    found = []
    for _ in range(2):
        trainer.train()
        found.append(weights(trainer.model))
    assert not list(differing(*found))
    assert found[0].keys() == weights(tiny_bert()).keys()


def test_an_optimiser_from_elsewhere_is_refused(tmp_path: Path) -> None:
    model = tiny_bert()
    given = (torch.optim.SGD(model.parameters(), lr=0.1), None)
    with pytest.raises(RecipeError, match="trains modules beside the model, which the given optimiser does not know"):
        RobustTrainer(model=model, args=arguments(tmp_path), recipe=recipe(), optimizers=given)


# What is refused.


def test_stages_share_one_pair_of_heads(tmp_path: Path) -> None:
    def staged(hidden: int) -> Recipe:
        anchors = [[{"name": "informative", "own_pass": False, **SMALL, "hidden": size}] for size in (12, hidden)]
        return build_recipe({"name": "two", "stages": [{"share": 0.5, "anchors": parts} for parts in anchors]})

    trainer = trained(staged(12), tmp_path, data=TinyData(16), max_steps=4)
    assert len(trainer._beside) == 1
    with pytest.raises(RecipeError, match="settings differ between them: give it the same in every stage"):
        trained(staged(7), tmp_path)


def test_a_pass_of_its_own_needs_a_perturbation_that_can_be_repeated() -> None:
    anchors = [{"name": "informative"}]
    with pytest.raises(RecipeError, match=r"own_pass=true runs the perturbed input .* is none: set own_pass=false"):
        build_recipe({"anchors": anchors})
    with pytest.raises(RecipeError, match="the perturbation is noise, which cannot be repeated"):
        build_recipe({"anchors": anchors, "objective": "consistency", "perturbation": "noise"})
    build_recipe({"anchors": anchors, "objective": "consistency", "perturbation": "dropout"})


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (t5_encoder, "T5ForTokenClassification is not a classifier of whole texts"),
        (lambda: tiny_bert(num_labels=1), "BertForSequenceClassification predicts a number"),
        (lambda: tiny_bert(problem_type="multi_label_classification"), "predicts several labels at once"),
        (lambda: tiny_lora(dtype=torch.float32, init_lora_weights="pissa"), "use init_lora_weights=True"),
        (lambda: nn.Linear(2, 2), "Linear has no base_model"),
    ],
)
def test_models_it_cannot_work_on(model: Any, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        load_recipe("informative").check_model(model())


def test_the_cost_and_the_formulas() -> None:
    assert str(load_recipe("informative").cost()) == "2F+B"
    assert str(recipe(own_pass=True).cost()) == "4F+3B"
    lines = load_recipe("informative").anchors[0].explain(load_recipe("informative").all_stages()[0])
    assert lines[0] == "loss += 0.1 * informative,  informative = InfoNCE between s and t, given the class"


def test_the_switches_matter(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        *({}, {"conditional": False}, {"normalise_over": "student"}, {"temperature": 1.0}, {"feature": "token"}),
        *(
            {"hidden": 3},
            {"out": 3},
            {"class_weights": "equal"},
            {"batches": "one_class"},
            {"batches": "mixed"},
            {"weight": 1.0},
        ),
    ]
    found = [weights(trained(recipe(**c), tmp_path, data=TinyData(16), max_steps=2).model) for c in changes]
    for one, other in itertools.combinations(found, 2):
        assert list(differing(one, other))


def test_sentences_with_padding_are_recognised_however_long_the_batch() -> None:
    short = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.tensor([[1, 1, 1]])}
    padded = {"input_ids": torch.tensor([[0, 5, 6, 7, 0]]), "attention_mask": torch.tensor([[0, 1, 1, 1, 0]])}
    assert row_keys(short) == row_keys(padded)
    typed = [short | {"token_type_ids": torch.tensor([types])} for types in ([0, 0, 0], [0, 0, 1])]
    assert row_keys(typed[0]) != row_keys(typed[1])
    assert row_keys({"input_ids": torch.tensor([[5, 6]])}) != row_keys({"input_ids": torch.tensor([[5, 6, 0]])})

"""Mixout: the formula, its gradient, its randomness, and that the weights always come back."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import GPT2Config, GPT2ForSequenceClassification

from replay import Batch, replay, same_weights
from rosewood.anchors.mixout import Mixout, MixoutTether
from rosewood.errors import RecipeError, RunError
from rosewood.protocol import Progress, Run
from rosewood.recipe import Recipe, build_recipe, load_recipe
from rosewood.training.trainer import RobustTrainer
from tiny import Recording, TinyData, arguments, differing, tiny_bert, trained, weights

AT = Progress(3, 10, micro_batch=1)


def started(model: nn.Module, **settings: Any) -> MixoutTether:
    """A tether for which the present weights are the pre-trained ones."""
    return Mixout(**settings).start(Run(model, 10, load_recipe("mixout").all_stages()[0], 0, weights(model)))


def move(model: nn.Module) -> dict[str, Tensor]:
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    return weights(model)


def recipe(**settings: Any) -> Recipe:
    return build_recipe({"name": "mixout", "anchors": [{"name": "mixout"} | settings]})


# The slow transcription: own random numbers, the formula as the paper prints it, the gradient by autograd.


def slow_masks(
    model: nn.Module, names: list[str], rows: set[str], m: int, key: tuple[int | str, ...]
) -> dict[str, Tensor]:
    """b of every parameter; `m` in units of 2^-16."""
    shapes = [(1, p.shape[1]) if n in rows else tuple(p.shape) for n, p in model.named_parameters() if n in names]
    count = sum(int(np.prod(shape)) for shape in shapes)
    seed = int.from_bytes(sha256(repr(key).encode()).digest()[:8], "little") >> 1
    words = torch.empty(-(-count // 4), dtype=torch.int64)
    words.random_(-(2**63), None, generator=torch.Generator().manual_seed(seed))
    numbers = words.numpy().view(np.int16).astype(np.int64) + 2**15
    masks, start = {}, 0
    for name, shape in zip(names, shapes, strict=True):
        size = int(np.prod(shape))
        masks[name] = torch.from_numpy((numbers[start : start + size] < m).astype(np.float64)).reshape(shape)
        start += size
    return masks


def is_linear(name: str) -> bool:
    return name.endswith("weight") and "LayerNorm" not in name and "embeddings" not in name


@pytest.mark.parametrize(
    ("probability", "scope", "level", "accumulation"),
    [
        (0.6, "all", "element", 1),
        (0.9, "all", "element", 3),
        (0.6, "linear", "element", 1),
        (0.6, "linear", "input_neuron", 1),
        (0.6, "all", "input_neuron", 2),
    ],
)
def test_a_training_run(probability: float, scope: str, level: str, accumulation: int, tmp_path: Path) -> None:
    settings = {"probability": probability, "scope": scope, "level": level}
    data = TinyData(size=4 * accumulation * 6)
    trainer = trained(
        recipe(**settings), tmp_path, data=data, max_steps=6, gradient_accumulation_steps=accumulation, seed=5
    )
    model = tiny_bert()
    before = weights(model)
    names = [n for n in before if n.startswith("bert.") and (scope == "all" or is_linear(n))]
    rows = {n for n in names if is_linear(n)} if level == "input_neuron" else set()
    units = round(probability * 2**16)
    m = units / 2**16

    def backward(batch: Batch, step: int, micro_batch: int) -> None:
        masks = slow_masks(model, names, rows, units, (5, "mixout", step, micro_batch))
        mixed = {
            name: (b * before[name] + (1 - b) * model.get_parameter(name) - m * before[name]) / (1 - m)
            for name, b in masks.items()
        }
        (functional_call(model, mixed, kwargs=batch).loss / accumulation).backward()

    replay(trainer, model, backward, accumulation=accumulation)
    same_weights(trainer.model, model)


def test_at_the_pretrained_weights_every_mask_gives_them_back() -> None:
    model = tiny_bert()
    tether, before = started(model, probability=0.7), weights(model)
    for step in range(3):
        with tether.around(Progress(step, 10)):
            assert not list(differing(weights(model), before))


def test_the_mean_over_masks_is_the_weight() -> None:
    model = nn.Linear(4, 3).double()
    tether = started(model, probability=0.5)
    moved = move(model)["weight"]
    draws = 4000
    total = torch.zeros_like(moved)
    for step in range(draws):
        with tether.around(Progress(step, draws)):
            total += model.weight.detach()
    spread = (moved - tether.pretrained[0]).abs()  # of one draw at m = 1/2
    assert bool(((total / draws - moved).abs() <= 5 * spread / draws**0.5).all())


def test_masks_have_the_right_share_everywhere() -> None:
    """In each quarter of the 64-bit draws, sign bits included."""
    model = nn.Linear(1000, 400)
    tether = started(model, probability=0.9)
    with tether.around(AT):
        k = tether._factors["weight"]
    assert k.unique().tolist() == pytest.approx([0.0, 10.0], rel=1e-3)
    for lane in k.flatten().view(-1, 4).unbind(1):
        assert float((lane == 0).float().mean()) == pytest.approx(0.9, abs=0.005)


def test_a_mask_belongs_to_a_step_and_a_micro_batch() -> None:
    model = nn.Linear(30, 30)
    tether, again = started(model), started(model)

    def factors(tether: MixoutTether, *key: int) -> Tensor:
        with tether.around(Progress(key[0], 10, micro_batch=key[1])):
            return tether._factors["weight"].clone()

    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert torch.equal(factors(tether, 2, 1), factors(again, 2, 1))
    assert torch.equal(torch.get_rng_state(), state), "dropout must not depend on the masks"
    assert not torch.equal(factors(tether, 2, 1), factors(tether, 3, 1))
    assert not torch.equal(factors(tether, 2, 1), factors(tether, 2, 0))


def test_the_weights_come_back_to_the_same_place_and_bits() -> None:
    model = tiny_bert(dtype=torch.float32)
    tether = started(model)
    moved = move(model)
    places = [parameter.data_ptr() for parameter in model.parameters()]
    with pytest.raises(KeyboardInterrupt), tether.around(AT):
        assert len(list(differing(weights(model), moved))) == len(tether.names)
        raise KeyboardInterrupt
    assert not list(differing(weights(model), moved))
    assert places == [parameter.data_ptr() for parameter in model.parameters()]


def test_pull_back_leaves_the_head_and_absent_gradients_alone() -> None:
    model = tiny_bert()
    tether = started(model, probability=0.5)
    with tether.around(AT):
        pass
    name = "bert.pooler.dense.weight"
    gradients = {name: torch.ones_like(tether._factors[name]), "classifier.bias": torch.ones(2)}
    tether.pull_back(gradients)
    assert torch.equal(gradients[name], tether._factors[name])
    assert torch.equal(gradients["classifier.bias"], torch.ones(2))
    tether.pull_back({})


def test_what_is_mixed() -> None:
    model = tiny_bert()
    names = [name for name, _ in model.named_parameters() if name.startswith("bert.")]
    assert Mixout().names(model) == names
    assert Mixout(scope="linear").names(model) == [name for name in names if is_linear(name)]


def test_an_input_neuron_is_masked_for_all_outputs_also_where_weights_are_transposed() -> None:
    gpt = GPT2ForSequenceClassification(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    for model, name, outputs in (
        (tiny_bert(), "bert.encoder.layer.0.intermediate.dense.weight", 0),
        (gpt, "transformer.h.0.mlp.c_fc.weight", 1),
    ):
        tether = started(model, probability=0.5, level="input_neuron", scope="linear")
        with tether.around(AT):
            k = tether._factors[name]
        assert k.shape == model.get_parameter(name).shape
        inputs = k.select(outputs, 0)
        assert torch.equal(k, inputs.unsqueeze(outputs).expand_as(k))
        assert 0 < float(inputs.sum()) < 2 * inputs.numel()


def test_probability_zero_is_vanilla_bit_for_bit(tmp_path: Path) -> None:
    runs = [
        trained(name, tmp_path, model=tiny_bert(dtype=torch.float32), gradient_accumulation_steps=2)
        for name in ("vanilla", recipe(probability=0.0))
    ]
    assert not list(differing(weights(runs[0].model), weights(runs[1].model)))


def test_gradient_checkpointing_changes_nothing(tmp_path: Path) -> None:
    plain, checkpointed = (
        trained(recipe(probability=0.6), tmp_path, max_steps=4, gradient_checkpointing=on) for on in (False, True)
    )
    assert not list(differing(weights(plain.model), weights(checkpointed.model)))


class Watching(Recording):
    """Remembers the weights that each evaluation and each training forward sees."""

    def compute_loss(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        weight = model.bert.pooler.dense.weight
        seen.append((model.training, weight.data_ptr(), weight.detach().clone()))
        return super().compute_loss(model, *args, **kwargs)


seen: list[tuple[bool, int, Tensor]] = []


def test_evaluation_sees_the_weights_themselves(tmp_path: Path) -> None:
    seen.clear()
    model = tiny_bert()
    place = model.bert.pooler.dense.weight.data_ptr()
    settings = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 4}
    trainer = Watching(
        model=model,
        args=arguments(tmp_path, **settings),
        train_dataset=TinyData(16),
        eval_dataset=TinyData(8),
        recipe="mixout",
    )
    trainer.train()
    assert {training: here == place for training, here, _ in seen} == {True: False, False: True}
    assert torch.equal(seen[-1][2], model.bert.pooler.dense.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    trainer = trained("mixout", tmp_path, model=tiny_bert(dtype=dtype), bf16=dtype == torch.float32, max_steps=3)
    assert all(bool(p.isfinite().all()) and p.dtype == dtype for p in trainer.model.parameters())


def test_the_original_turns_dropout_off(tmp_path: Path) -> None:
    model = tiny_bert()
    dropouts = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    seen: set[float] = set()
    model.register_forward_pre_hook(lambda *_: seen.update(module.p for module in dropouts))
    trained("mixout:original", tmp_path, model=model, max_steps=1)
    assert seen == {0.0}
    assert {module.p for module in dropouts} == {0.1}, "the model comes back as it was"
    spec = {"anchors": [{"name": "mixout", "dropout": 0.0}], "selection": {"name": "rose", "order": "first"}}
    with pytest.raises(RecipeError, match=r"mixout turns dropout off .* selection rose compares passes"):
        build_recipe(spec)


def test_a_model_without_pretrained_parameters_is_refused(tmp_path: Path) -> None:
    model = tiny_bert()
    model.bert.requires_grad_(False)
    with pytest.raises(RecipeError, match="has no trainable parameter in its base model"):
        RobustTrainer(model=model, args=arguments(tmp_path), recipe="mixout")


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    whole = trained("mixout", tmp_path, save_strategy="steps", save_steps=5, gradient_accumulation_steps=2)
    checkpoint = str(tmp_path / "checkpoint-5")
    resumed = trained("mixout", tmp_path, resume=checkpoint, gradient_accumulation_steps=2)
    assert not list(differing(weights(whole.model), weights(resumed.model)))
    with pytest.raises(RunError, match="started from other pre-trained weights"):
        trained("mixout", tmp_path, model=tiny_bert(seed=7), resume=checkpoint)

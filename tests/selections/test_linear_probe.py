"""The linear probe: a head that learns, an encoder that stands still, and LP-FT as two stages."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import TrainerCallback

from rosewood.errors import RecipeError
from rosewood.protocol import Run
from rosewood.recipe import build_recipe, load_recipe
from rosewood.selections.linear_probe import HeadOnly, LinearProbe
from tiny import Recording, TinyData, arguments, differing, tiny_bert, trained, weights

PROBE = build_recipe({"name": "probe", "selection": "linear_probe"})
LP_FT = load_recipe("lp-ft")
HEAD = {"classifier.weight", "classifier.bias"}


def probe_of(model: nn.Module) -> HeadOnly:
    return LinearProbe().start(Run(model, 10, PROBE.all_stages()[0]))


class Watch(TrainerCallback):
    """What moves, the optimiser's clock, and whether the encoder was in training mode, step by step."""

    def __init__(self) -> None:
        self.before: dict[str, torch.Tensor] = {}
        self.moved: list[set[str]] = []
        self.clock: list[int] = []
        self.training: list[tuple[bool, bool]] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.before = weights(kwargs["model"])

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model, optimizer = kwargs["model"], kwargs["optimizer"]
        self.moved.append(set(differing(self.before, weights(model))))
        self.clock.append(int(optimizer.state[model.classifier.weight]["step"]))
        self.training.append((model.training, model.bert.training))


def watched(recipe: Any, directory: Path, **settings: Any) -> tuple[Recording, Watch]:
    watch = Watch()
    return trained(recipe, directory, callbacks=[watch], **settings), watch


def test_only_the_head_moves_and_only_the_encoder_is_in_eval_mode(tmp_path: Path) -> None:
    trainer, watch = watched(PROBE, tmp_path, max_steps=4)
    assert watch.moved == [HEAD] * 4
    assert watch.training == [(True, False)] * 4
    named = dict(trainer.model.named_parameters())
    assert {name for name, p in named.items() if p in trainer.optimizer.state} == HEAD
    assert all(p.requires_grad for p in named.values()), "given back as it came"


def test_dropout_is_off_in_the_encoder_and_on_in_the_head() -> None:
    model = tiny_bert(dropout=0.5).train()
    ids = torch.randint(5, 50, (3, 8))
    probe = probe_of(model)
    probe.enter()
    features = []
    for _ in range(2):
        model.train()
        features.append(model.bert(input_ids=ids).pooler_output)
    assert torch.equal(*features)
    logits = []
    for _ in range(2):
        model.train()
        logits.append(model(input_ids=ids).logits)
    assert not torch.equal(*logits)
    assert not features[0].requires_grad, "no graph below the head"


def test_leaving_restores_what_entering_changed() -> None:
    model = tiny_bert(dropout=0.5).train()
    model.bert.embeddings.requires_grad_(False)
    model.classifier.bias.requires_grad_(False)
    before = {name: p.requires_grad for name, p in model.named_parameters()}
    probe = probe_of(model)
    probe.enter()
    model(input_ids=torch.randint(5, 50, (3, 8)))
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["classifier.weight"]
    probe.leave()
    assert {name: p.requires_grad for name, p in model.named_parameters()} == before
    assert all(module.training for module in model.modules())
    first, second = (model.bert(input_ids=torch.arange(5, 13)[None]).pooler_output for _ in range(2))
    assert not torch.equal(first, second)
    probe.leave()  # twice does no harm
    assert {name: p.requires_grad for name, p in model.named_parameters()} == before


def test_evaluation_in_between_changes_nothing(tmp_path: Path) -> None:
    # Without dropout, because the loader of an evaluation draws from the global generator.
    plain = trained(PROBE, tmp_path, tiny_bert(dropout=0.0), max_steps=4)
    trainer = Recording(
        model=tiny_bert(dropout=0.0),
        args=arguments(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=1),
        train_dataset=TinyData(),
        eval_dataset=TinyData(size=8, seed=3),
        recipe=PROBE,
    )
    trainer.train()
    assert not list(differing(weights(plain.model), weights(trainer.model)))


def test_lp_ft_has_a_frozen_and_a_free_half_with_a_fresh_optimiser(tmp_path: Path) -> None:
    _, watch = watched(LP_FT, tmp_path, max_steps=10)
    assert watch.moved[:5] == [HEAD] * 5
    assert all(len(moved) > 30 for moved in watch.moved[5:])
    assert watch.training == [(True, False)] * 5 + [(True, True)] * 5
    assert watch.clock == [1, 2, 3, 4, 5] * 2


def step(model: nn.Module, parameters: list[nn.Parameter], optimizer: Any, batches: list[Any], probing: bool) -> None:
    for i, (state, batch) in enumerate(batches):
        torch.set_rng_state(state)
        model.train()
        model.bert.train(not probing)  # type: ignore[union-attr,operator]
        logits = model(**{key: value for key, value in batch.items() if key != "labels"}).logits
        found = torch.autograd.grad(cross_entropy(logits, batch["labels"]), parameters)
        norm = sum((g**2).sum() for g in found) ** 0.5
        for parameter, g in zip(parameters, found, strict=True):
            parameter.grad = g * min(1.0, float(1.0 / (norm + 1e-6)))
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (len(batches) - i) / len(batches)
        optimizer.step()


def adamw(named: dict[str, nn.Parameter]) -> torch.optim.AdamW:
    plain = {name for name in named if "bias" in name or "LayerNorm" in name}
    groups = [
        {"params": [p for name, p in named.items() if name not in plain], "weight_decay": 0.01},
        {"params": [p for name, p in named.items() if name in plain], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-6)


def test_lp_ft_against_two_plain_loops(tmp_path: Path) -> None:
    trainer = trained(LP_FT, tmp_path, max_steps=10)
    model = tiny_bert()
    every = dict(model.named_parameters())
    head = {name: p for name, p in every.items() if name in HEAD}
    step(model, list(head.values()), adamw(head), trainer.micro_batches[:5], probing=True)
    step(model, list(every.values()), adamw(every), trainer.micro_batches[5:], probing=False)
    expected = weights(model)
    for name, weight in weights(trainer.model).items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("checkpoint", [3, 5, 7])
def test_resuming_inside_each_stage_and_between_them(checkpoint: int, tmp_path: Path) -> None:
    whole = trained(LP_FT, tmp_path, tiny_bert(dtype=torch.float32), save_strategy="steps", save_steps=checkpoint)
    resumed = trained(
        LP_FT, tmp_path, tiny_bert(dtype=torch.float32, seed=7), resume=str(tmp_path / f"checkpoint-{checkpoint}")
    )
    assert not list(differing(weights(whole.model), weights(resumed.model)))
    assert all(p.requires_grad for p in resumed.model.parameters())


def test_an_interrupted_probe_leaves_the_model_free(tmp_path: Path) -> None:
    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            raise KeyboardInterrupt

    model = tiny_bert()
    trainer = Recording(model=model, args=arguments(tmp_path), train_dataset=TinyData(), recipe=LP_FT)
    trainer.add_callback(Stop())
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert all(p.requires_grad for p in model.parameters())


def test_models_without_an_encoder_or_a_head_are_refused(tmp_path: Path) -> None:
    assert LinearProbe().problems_with(nn.Linear(2, 2)) == [
        "selection linear_probe trains what is on top of an encoder, but Linear has no base_model"
    ]
    bare = tiny_bert().bert
    assert "BertModel has no base_model" in LinearProbe().problems_with(bare)[0]
    model = tiny_bert()
    model.classifier.requires_grad_(False)
    assert "no trainable parameter outside base_model" in LinearProbe().problems_with(model)[0]
    with pytest.raises(RecipeError, match="no trainable parameter outside"):
        Recording(model=model, args=arguments(tmp_path), recipe=LP_FT)


def test_what_a_step_costs() -> None:
    probing, tuning = LP_FT.stages
    assert str(PROBE.cost()) == "F"
    assert probing.selection.cost(probing).plus(probing.objective.cost(probing)) == (1, 0, 0)
    assert str(LP_FT.cost()) == "F+B"
    assert tuning.selection.name == "everything"
    assert probing.selection.explain(probing) == [
        "only the parameters of the head move; the encoder is frozen, its dropout off"
    ]


def test_anchors_on_weights_that_stand_still_are_refused() -> None:
    with pytest.raises(RecipeError, match="anchor l2_sp acts on the weights of the encoder, which selection linear_pr"):
        load_recipe(LP_FT, {"anchors": ["l2_sp"], "stages": [{"share": 1.0, "selection": "linear_probe"}]})
    free = [
        {"share": 0.5, "selection": "linear_probe", "anchors": []},
        {"share": 0.5, "selection": "everything"},
    ]
    assert [len(s.anchors) for s in load_recipe(LP_FT, {"anchors": ["l2_sp"], "stages": free}).stages] == [0, 1]

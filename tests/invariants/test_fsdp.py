"""Every recipe gives the same weights where two processes share the parameters (FSDP2) as on one process."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from every_recipe import every_recipe
from keyed_draws import keyed_draws
from keyed_dropout import keyed_dropout
from rosewood.recipe import load_recipe
from rosewood.tensors.shards import whole
from sharded import SHARDED, allow_fsdp_on_cpu
from tiny import Recording, TinyData, tiny_bert, trained
from tiny_lora import tiny_lora
from two_processes import asked_for, in_two_processes
from uncached import uncached

STEPS = 4  # three an epoch
SAM = {"objective.clean_weight": 0.0, "objective.perturbed_weight": 1.0, "objective.divergence_weight": 0.0}
# Beyond the recipes as they are: what else can go wrong with parts of tensors, with reading and with accumulating.
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "single weights": ("rose-ensemble", {"selection.level": "element"}),
    "sketched risks": ("rose-ensemble", {"selection.risk_sketch": 3, "selection.probe_every": 2}),
    "masks for all outputs": ("mixout", {"anchors.0.level": "input_neuron"}),
    "path and read": ("freelb", {"selection": {"name": "rose", "order": "second"}}),
    "ascent alone and read": ("advweight", SAM | {"selection": "rose"}),
    "mixed and read": ("mixout", {"selection": "rose", "objective": "consistency", "perturbation": "dropout"}),
    "teacher in training": ("smart", {"anchors.0.teacher_mode": "train", "selection": "rose"}),
}
ACCUMULATED = ["r-drop+rose-ensemble", "roast"]
ADAPTED = ["rose-ensemble", "wconsol", "mixout"]
CASES = [
    *every_recipe(),
    *MORE,
    *(f"{name} in two parts" for name in ACCUMULATED),
    *(f"{name} on LoRA" for name in ADAPTED),
]


def run(case: str, folder: Path, batch: int, **settings: Any) -> Recording:
    name, overrides = MORE.get(case, (case.removesuffix(" in two parts").removesuffix(" on LoRA"), {}))
    halves = 2 if case.endswith(" in two parts") else 1
    # Three classes and one token type: neither can be halved, and the second process has nothing of the latter.
    model = tiny_lora() if case.endswith(" on LoRA") else tiny_bert(num_labels=3, type_vocab_size=1)
    settings |= {"per_device_train_batch_size": batch // halves, "gradient_accumulation_steps": halves}
    with keyed_dropout(model), keyed_draws():
        data = TinyData(size=24, classes=model.config.num_labels)
        recipe = uncached(load_recipe(name, overrides))  # as divided models are: it decides how many passes there are
        return trained(recipe, folder, model=model, data=data, max_steps=STEPS, logging_steps=1, **settings)


def facts(run: Recording) -> dict[str, Any]:
    masks = [{name: value for name, value in step.items() if isinstance(value, float)} for step in run.masks]
    losses = [{k: v for k, v in entry.items() if "loss" in k or k == "kept_share"} for entry in run.state.log_history]
    parameters = dict(run.model.named_parameters())
    return {
        "weights": {name: whole(p).detach().clone() for name, p in parameters.items()},
        "sharded": all(isinstance(p, DTensor) for p in parameters.values()),
        "masks": masks,
        "losses": losses,
    }


def together(rank: int, folder: Path, cases: list[str]) -> dict[str, Any]:
    allow_fsdp_on_cpu()
    return {case: facts(run(case, folder / f"out{rank}", batch=4, **SHARDED)) for case in cases}


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("together")
    return in_two_processes(together, folder, folder, asked_for(request, "case"))


@pytest.mark.parametrize("case", CASES)
def test_two_processes_with_half_of_the_model_each_are_one(
    case: str, ranks: list[dict[str, Any]], tmp_path: Path
) -> None:
    alone, together = facts(run(case, tmp_path, batch=8)), ranks[0][case]
    assert together["sharded"] and not alone["sharded"]
    assert_close(together["weights"], alone["weights"])
    assert together["masks"] == alone["masks"]
    for mine, theirs in zip(together["losses"], alone["losses"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_both_processes_see_the_same_masks_and_weights(case: str, ranks: list[dict[str, Any]]) -> None:
    first, second = (rank[case] for rank in ranks)
    assert first["masks"] == second["masks"]
    assert all(torch.equal(weight, second["weights"][key]) for key, weight in first["weights"].items())


def assert_close(some: dict[str, Tensor], others: dict[str, Tensor]) -> None:
    for name, weight in some.items():
        torch.testing.assert_close(weight, others[name], rtol=0, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")

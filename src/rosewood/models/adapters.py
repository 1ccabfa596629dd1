"""PEFT adapters: a new LoRA adapter, what adapters sit on, how far they move the weights, how to open one.

This module does not import peft at the top, so only users of adapters need it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from huggingface_hub import ModelCardData
from safetensors import safe_open
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel
from transformers.utils import cached_file
from transformers.utils.peft_utils import ADAPTER_CONFIG_NAME, ADAPTER_SAFE_WEIGHTS_NAME, find_adapter_config_file

from rosewood.config.settings import Lora
from rosewood.errors import RunError
from rosewood.models.names import quiet_loading

if TYPE_CHECKING:
    from peft import PeftModel


# Initialisations that leave the weights below the adapter as they are; the others (pissa, olora, ...) take a part out.
KEEPS_WEIGHTS = (True, False, "gaussian", "eva")


class LowRank(NamedTuple):
    """A layer with the weight W0 + scaling B A: the names of W0, of A (rank, inputs) and of B (outputs, rank)."""

    base: str
    down: str
    up: str
    scaling: float
    embedding: bool
    transposed: bool  # whether W0 is (inputs, outputs)

    @property
    def factors(self) -> tuple[str, str]:
        return self.down, self.up


def without_adapter(model: nn.Module) -> nn.Module:
    """The model inside a PEFT wrapper, with its adapter layers; any other model as it is."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]


def encoder(model: nn.Module) -> nn.Module | None:
    """The part of a model below its head; None if the model does not tell the two apart."""
    bare = without_adapter(model)
    below = getattr(bare, "base_model", bare)
    return None if below is bare else below


def low_rank_changes(model: nn.Module) -> list[LowRank]:
    """Every active LoRA adapter of every layer."""
    return [change for name, layer in model.named_modules() for change in _of_layer(name, layer)]


def _of_layer(name: str, layer: nn.Module) -> Iterator[LowRank]:
    # AdaLoRA has three factors, in parameters instead of modules.
    if not isinstance(getattr(layer, "lora_A", None), nn.ModuleDict):
        return
    known: Any = layer
    for adapter in known.active_adapters:
        base = f"{name}.base_layer.weight"
        if adapter in known.lora_A:
            factors = (f"{name}.lora_A.{adapter}.weight", f"{name}.lora_B.{adapter}.weight")
            yield LowRank(base, *factors, known.scaling[adapter], False, bool(known.fan_in_fan_out))
        elif adapter in known.lora_embedding_A:
            factors = (f"{name}.lora_embedding_A.{adapter}", f"{name}.lora_embedding_B.{adapter}")
            yield LowRank(base, *factors, known.scaling[adapter], True, True)


def start_problems(model: nn.Module, user: str) -> list[str]:
    """Sentences that say why the model is not its pre-trained self when its adapters are off; none if it is."""
    changed = [init for config in _configs(model) if (init := _start(config)) not in KEEPS_WEIGHTS]
    return [
        f"{user} needs the pre-trained weights, and init_lora_weights={init!r} has moved a part of them into the "
        "adapter: use init_lora_weights=True"
        for init in changed
    ]


def change_problems(model: nn.Module, user: str) -> list[str]:
    """Sentences that say why the distance from the pre-trained weights is not known; none if it is."""
    kinds = sorted({config.peft_type.value for config in _configs(model)} - {"LORA"})
    if kinds:
        return [f"{user} knows how far LoRA takes the weights, not how far {' and '.join(kinds)} does: use LoRA"]
    changes = low_rank_changes(model)
    if len({change.base for change in changes}) < len(changes):
        return [f"{user} knows how far one adapter takes the weights, and here several are active: activate one"]
    if any(_is_variant(layer) for layer in model.modules()):
        return [
            f"{user} knows how far plain LoRA takes the weights, W0 + scaling B A, and a layer of this model computes "
            "something else (such as DoRA): leave such settings of LoraConfig out, or the anchor"
        ]
    return start_problems(model, user)


def _is_variant(layer: Any) -> bool:
    """Whether a LoRA layer adds something else than scaling B A, such as DoRA, or one product for each expert."""
    if not isinstance(getattr(layer, "lora_A", None), nn.ModuleDict):
        return False
    stacked = any(factor.weight.shape[0] != layer.r[adapter] for adapter, factor in layer.lora_A.items())
    return stacked or bool(layer.lora_variant)


def virtual_token_problems(model: nn.Module, user: str) -> list[str]:
    """Sentences that say why tokens of the batch and of the model do not correspond; none if they do."""
    kinds = [config.peft_type.value for config in _configs(model) if config.is_prompt_learning]
    return [
        f"{user} changes single tokens, and {kind} puts tokens of its own before them: use an adapter such as LoRA"
        for kind in kinds
    ]


def _configs(model: nn.Module) -> list[Any]:
    return list(getattr(model, "peft_config", {}).values())


def _start(config: Any) -> bool | str:
    return getattr(config, "init_lora_weights", True)


def adapter_folder(path_or_name: str) -> Path | None:
    """The folder with the files of an adapter, fetched from the Hub if it is there; None if it is a whole model."""
    if find_adapter_config_file(path_or_name) is None:
        return None
    weights = cached_file(path_or_name, ADAPTER_SAFE_WEIGHTS_NAME)
    assert weights is not None, "cached_file raises where a file is missing"
    return Path(weights).parent


def base_name(folder: Path) -> str:
    """The model that an adapter was trained on."""
    config = json.loads((folder / ADAPTER_CONFIG_NAME).read_text(encoding="utf-8"))
    name = config.get("base_model_name_or_path")
    if not name:
        raise RunError(
            f"the adapter in {folder} does not say which model it belongs to: write the model's folder or name into "
            f"base_model_name_or_path of its {ADAPTER_CONFIG_NAME}"
        )
    return str(name)


def load_merged(folder: Path, base: str) -> PreTrainedModel:
    """The base model with the adapter merged into it: an ordinary model. No pickled weights, no foreign code."""
    try:
        from peft import PeftModel
    except ImportError:
        raise RunError(
            f"{folder} holds an adapter, which needs the package peft: pip install 'rosewood[lora]'"
        ) from None
    settings: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False}
    with safe_open(folder / ADAPTER_SAFE_WEIGHTS_NAME, framework="pt") as tensors:
        saved = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    config = _config(folder, base, saved)
    with quiet_loading():  # what the base model lacks comes from the adapter, or is refused below
        model, loaded = AutoModelForSequenceClassification.from_pretrained(
            base, config=config, ignore_mismatched_sizes=True, output_loading_info=True, **settings
        )
    mismatched = {key[0] for key in loaded["mismatched_keys"]}
    random = [name for name in {*loaded["missing_keys"], *mismatched} if f"base_model.model.{name}" not in saved]
    if random:
        raise RunError(
            f"neither the adapter in {folder} nor its base model {base} has weights for {', '.join(sorted(random))}, "
            "which would be random: train the adapter with these layers in modules_to_save"
        )
    adapted = PeftModel.from_pretrained(model, str(folder))
    if not hasattr(adapted, "merge_and_unload"):
        kind = adapted.active_peft_config.peft_type.value
        raise RunError(f"the adapter in {folder} is of the kind {kind}, which cannot be merged into a model: use LoRA")
    merged: PreTrainedModel = adapted.merge_and_unload()
    merged.name_or_path = str(folder)
    return merged.eval()


def _config(folder: Path, base: str, saved: dict[str, tuple[int, ...]]) -> PretrainedConfig:
    """The base model's, with the outputs of the adapter's head; their names, if a config.json beside it has them."""
    if (folder / "config.json").exists():
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)
    config = AutoConfig.from_pretrained(base, trust_remote_code=False)
    head = saved.get(f"base_model.model.{_output_weight(base)}")
    if head is not None and head[0] != config.num_labels:
        config.num_labels = head[0]
    return config


def _output_weight(base: str) -> str:
    """The parameter of a classifier whose shape follows the number of labels."""
    shapes = []
    for labels in (2, 3):
        config = AutoConfig.from_pretrained(base, trust_remote_code=False, num_labels=labels)
        with torch.device("meta"):
            skeleton = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)
        shapes.append({name: parameter.shape for name, parameter in skeleton.named_parameters()})
    return next(name for name, shape in shapes[0].items() if shape != shapes[1][name])


def with_adapter(model: PreTrainedModel, lora: Lora, new: Iterable[str]) -> PeftModel:
    """The model with a LoRA adapter; its head, and the modules of `new` parameters, are trained as a whole.

    `new` are the parameters that no checkpoint has: an adapter beside random numbers that nobody keeps could never be
    loaded again.
    """
    try:
        from peft import LoraConfig, TaskType, get_peft_model
    except ImportError:
        raise RunError("LoRA needs the package peft: pip install 'rosewood[lora]'") from None
    config = LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules="all-linear" if lora.targets == ["all-linear"] else lora.targets,
        modules_to_save=sorted(
            {*head_modules(model), *(name.rpartition(".")[0] for name in new if _is_below(model, name))}
        ),
    )
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        raise RunError(
            f"no LoRA adapter can be put on this model: {str(error).splitlines()[0]} Its linear layers are "
            f"{', '.join(_linear_layers(model))}; --lora-targets all-linear takes them all."
        ) from None


def readme(model: PeftModel, recipe: str) -> str:
    """The card of an adapter, in place of the template that PEFT writes beside it."""
    base = str(model.active_peft_config.base_model_name_or_path)
    data = ModelCardData(
        base_model=None if Path(base).is_absolute() else base,  # a folder of this machine means nothing elsewhere
        library_name="peft",
        pipeline_tag="text-classification",
        tags=["rosewood", "robustness", "lora", recipe],
    )
    labels = ", ".join(model.config.id2label.values())
    return f"""---
{data.to_yaml()}
---

# LoRA adapter

An adapter of `{Path(base).name if Path(base).is_absolute() else base}` for sequence classification, fine-tuned with
Rosewood's recipe **{recipe}**. Its outputs are {labels}.

The model beside it, in `../model`, has the adapter merged in and loads without PEFT. To use the adapter itself:

```python
from peft import AutoPeftModelForSequenceClassification

model = AutoPeftModelForSequenceClassification.from_pretrained("path/to/adapter", num_labels={model.config.num_labels})
```

`rosewood evaluate RUN` measures how robust it is, and `rosewood card RUN` writes a card with the figures.
"""


def head_modules(model: PreTrainedModel) -> set[str]:
    """The names of the modules beside the encoder that have parameters."""
    below = encoder(model)
    return {
        name for name, child in model.named_children() if child is not below and any(True for _ in child.parameters())
    }


def _is_below(model: PreTrainedModel, name: str) -> bool:
    return name.partition(".")[0] == model.base_model_prefix


def _linear_layers(model: Any) -> list[str]:
    names = [name for name, module in model.base_model.named_modules() if type(module).__name__ in ("Linear", "Conv1D")]
    return sorted({name.rpartition(".")[2] for name in names})

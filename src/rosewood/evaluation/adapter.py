"""A trained classifier whose checkpoint is an adapter: the base model it names, with the adapter merged into it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel
from transformers.utils import cached_file, logging
from transformers.utils.peft_utils import ADAPTER_CONFIG_NAME, ADAPTER_SAFE_WEIGHTS_NAME, find_adapter_config_file

from rosewood.errors import RunError


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
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # what the base model lacks comes from the adapter, or is refused below
    try:
        model, loaded = AutoModelForSequenceClassification.from_pretrained(
            base, config=config, ignore_mismatched_sizes=True, output_loading_info=True, **settings
        )
    finally:
        logging.set_verbosity(verbosity)
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

"""The model that a run trains and its tokenizer: a pre-trained one, or a classifier that is to be trained further."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from rosewood.data.models import resolve_model, why_not_loaded
from rosewood.data.tasks import Task
from rosewood.errors import RunError
from rosewood.evaluation.adapter import adapter_folder
from rosewood.evaluation.classifier import check_vocabulary, load_classifier, set_padding
from rosewood.model.adapters import encoder
from rosewood.model.on_disk import EXPECTED, Outline, outline, quiet_loading, shapes_below
from rosewood.results import Lora
from rosewood.scoring import longest_text
from rosewood.training.lora import head_modules, with_adapter

if TYPE_CHECKING:
    from peft import PeftModel


def outline_of(name: str, trust_remote_code: bool = False) -> Outline:
    """What a checkpoint has, as a text classifier; an adapter counts as the classifier that it makes of its base."""
    path = resolve_model(name)
    try:
        is_adapter = adapter_folder(path) is not None
    except Exception as error:  # as below
        raise RunError(f"the model {name!r} cannot be loaded: {why_not_loaded(name, error)}\n{EXPECTED}") from error
    if not is_adapter:
        return outline(name, trust_remote_code)
    model, _ = load_classifier(path)
    return Outline(model.config, has_head=True, encoder=shapes_below(model))


def load_pretrained(
    name: str,
    task: Task,
    seed: int,
    trust_remote_code: bool = False,
    lora: Lora | None = None,
    new_head: bool = False,
) -> tuple[PreTrainedModel | PeftModel, PreTrainedTokenizerBase]:
    """A model whose outputs are the labels of the task, and perhaps an adapter.

    A classification head that it has is kept unless `new_head`; a new one is drawn with the seed. Code that comes with
    the model runs only if trusted.
    """
    path = resolve_model(name)
    try:
        model, tokenizer, missing = _load(path, task, seed, trust_remote_code)
    except RunError:
        raise
    except Exception as error:  # what a damaged checkpoint makes transformers say has no common type
        raise RunError(f"the model {name!r} cannot be loaded: {why_not_loaded(name, error)}\n{EXPECTED}") from error
    check_vocabulary(tokenizer, name, model)
    if isinstance(tokenizer.chat_template, dict):
        # A classifier uses none, and their names, chosen by whoever made the checkpoint, become names of files.
        tokenizer.chat_template = None
    set_padding(model, tokenizer)
    if new_head:
        _replace_head(model, seed, trust_remote_code)
    return (model if lora is None else with_adapter(model, lora, new=missing)), tokenizer


def keep_length(model: Any, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """Have the tokenizer say, also when it is saved, how many tokens of a text the model reads."""
    longest = longest_text(model, tokenizer)
    if max_length > longest:
        raise RunError(f"max_length {max_length} is more than the model's {longest} tokens")
    tokenizer.model_max_length = max_length


def _load(
    path: str, task: Task, seed: int, trust_remote_code: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, set[str]]:
    """The model, its tokenizer, and the weights that the checkpoint lacks."""
    labels: dict[str, Any] = {
        "num_labels": len(task.labels),
        "id2label": dict(enumerate(task.labels)),
        "label2id": {label: i for i, label in enumerate(task.labels)},
        "problem_type": "multi_label_classification" if task.multi_label else "single_label_classification",
    }
    if adapter_folder(path) is not None:
        merged, tokenizer = load_classifier(path, trust_remote_code)
        merged.config.update(labels)
        merged.num_labels = len(task.labels)  # type: ignore[assignment]
        return merged.requires_grad_(True), tokenizer, set()  # PEFT has frozen it
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
    set_seed(seed)
    with quiet_loading():
        model, loaded = AutoModelForSequenceClassification.from_pretrained(
            path,
            **labels,
            ignore_mismatched_sizes=True,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    return model, tokenizer, loaded["missing_keys"]


def _replace_head(model: PreTrainedModel, seed: int, trust_remote_code: bool) -> None:
    """Give the model a new, seeded head in place of the one that it has."""
    if encoder(model) is None:
        raise RunError(f"{type(model).__name__} does not tell its head from its encoder: --new-head cannot replace it")
    set_seed(seed)
    fresh = AutoModelForSequenceClassification.from_config(model.config, trust_remote_code=trust_remote_code)
    for name in head_modules(model):
        setattr(model, name, getattr(fresh, name).to(device=model.device, dtype=model.dtype))

"""The pre-trained model and its tokenizer, ready to be fine-tuned on a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers.utils import logging

from rosewood.data.models import resolve_model, why_not_loaded
from rosewood.data.tasks import Task
from rosewood.errors import RunError
from rosewood.evaluation.classifier import check_vocabulary, set_padding
from rosewood.results import Lora
from rosewood.training.lora import with_adapter

if TYPE_CHECKING:
    from peft import PeftModel


def load_pretrained(
    name: str, task: Task, seed: int, trust_remote_code: bool = False, lora: Lora | None = None
) -> tuple[PreTrainedModel | PeftModel, PreTrainedTokenizerBase]:
    """A model with a new, seeded classification head for the task, and perhaps an adapter.

    Runs code that comes with it only if trusted.
    """
    path = resolve_model(name)
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # a new head is what we want, not a reason for a warning
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
        set_seed(seed)
        model, loaded = AutoModelForSequenceClassification.from_pretrained(
            path,
            num_labels=len(task.labels),
            id2label=dict(enumerate(task.labels)),
            label2id={label: i for i, label in enumerate(task.labels)},
            ignore_mismatched_sizes=True,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    except Exception as error:  # what a damaged checkpoint makes transformers say has no common type
        raise RunError(
            f"the model {name!r} cannot be loaded: {why_not_loaded(name, error)}\n"
            "Expected a folder with config.json, tokenizer and safetensors weights, a name on the Hugging Face Hub "
            "(which must be reachable), or a short name from `rosewood list models`."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    check_vocabulary(tokenizer, name, model)
    if isinstance(tokenizer.chat_template, dict):
        # A classifier uses none, and their names, chosen by whoever made the checkpoint, become names of files.
        tokenizer.chat_template = None
    set_padding(model, tokenizer)
    if lora is not None:
        model = with_adapter(model, lora, new=loaded["missing_keys"])
    return model, tokenizer

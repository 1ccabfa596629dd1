"""A checkpoint on disk: what it has, without reading its weights, and the weights of its encoder alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from rosewood.data.models import resolve_model, why_not_loaded
from rosewood.errors import RunError

Shapes = Mapping[str, tuple[int, ...]]
EXPECTED = (
    "Expected a folder with config.json, tokenizer and safetensors weights, a name on the Hugging Face Hub "
    "(which must be reachable), or a short name from `rosewood list models`."
)


@dataclass(frozen=True)
class Outline:
    """A checkpoint as a text classifier, without its weights.

    `has_head` says whether it has every weight of a classification head: whether it was fine-tuned as a classifier.
    `encoder` are the shapes of the weights below the head.
    """

    config: PretrainedConfig
    has_head: bool
    encoder: Shapes


def outline(name: str, trust_remote_code: bool = False) -> Outline:
    """Look at a checkpoint. What decides are its weights; the architecture that its config.json names may be old."""
    model, loaded = _loaded(AutoModelForSequenceClassification, name, trust_remote_code, device_map="meta")
    prefix = f"{model.base_model_prefix}."
    absent = {*loaded["missing_keys"], *(key[0] for key in loaded["mismatched_keys"])}
    return Outline(model.config, all(key.startswith(prefix) for key in absent), shapes_below(model))


def shapes_below(model: PreTrainedModel) -> Shapes:
    """The shapes of the weights below the head, as the base model calls them."""
    return {key: tuple(tensor.shape) for key, tensor in model.base_model.state_dict().items()}


def encoder_shapes(name: str, trust_remote_code: bool = False, local: bool = False) -> Shapes:
    """The shapes of the weights that a model has below its head; `local` asks no network."""
    options = {"local_files_only": True} if local else {}
    model, loaded = _loaded(AutoModel, name, trust_remote_code, device_map="meta", **options)
    return {key: tuple(t.shape) for key, t in model.state_dict().items() if key not in loaded["missing_keys"]}


def encoder_weights(name: str, trust_remote_code: bool = False) -> dict[str, Tensor]:
    """The weights of a model below its head, as its base model calls them; those that it lacks are left out."""
    model, loaded = _loaded(AutoModel, name, trust_remote_code)
    return {key: tensor for key, tensor in model.state_dict().items() if key not in loaded["missing_keys"]}


def _loaded(kind: Any, name: str, trust_remote_code: bool, **options: Any) -> tuple[Any, dict[str, Any]]:
    try:
        with quiet_loading():
            model, loaded = kind.from_pretrained(
                resolve_model(name),
                use_safetensors=True,
                trust_remote_code=trust_remote_code,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **options,
            )
    except Exception as error:  # what a damaged checkpoint makes transformers say has no common type
        raise RunError(f"the model {name!r} cannot be loaded: {why_not_loaded(name, error)}\n{EXPECTED}") from error
    return model, loaded


@contextmanager
def quiet_loading() -> Iterator[None]:
    """No progress bar, and no warning about a head that is new or not used, which is what we want."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()

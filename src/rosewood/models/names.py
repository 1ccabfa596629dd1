"""A model before it is loaded: its name, its outline on disk, and its fingerprint.

Equal fingerprints mean equal results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash
from huggingface_hub.errors import HFValidationError
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from rosewood.data.embedded import INSTALL, embedded_model
from rosewood.data.files import file_digest
from rosewood.errors import RunError
from rosewood.models.defended import defence_of


@dataclass(frozen=True)
class ModelInfo:
    """What a list of models shows about one of them."""

    title: str
    millions: float
    """Parameters in millions, without a task head."""
    install: str = ""
    """The command that installs it; a model without one comes from the Hub."""
    note: str = ""

    @property
    def needs_hub(self) -> bool:
        """Whether it comes from the Hub."""
        return not self.install


_TUNED = "tuned on sentence pairs that include SNLI, MNLI and Quora duplicates: say so beside any NLI or QQP figure"


def models() -> dict[str, ModelInfo]:
    """The known model names; any other Hub name or local path works too."""
    return {
        "minilm": ModelInfo("all-MiniLM-L6-v2", 22.7, INSTALL["minilm"], _TUNED),
        "mpnet": ModelInfo("all-mpnet-base-v2, base size", 109.5, INSTALL["mpnet"], _TUNED),
        "smollm2": ModelInfo(
            "SmolLM2-135M-Instruct, a decoder",
            134.5,
            INSTALL["smollm2"],
            note="from a file with 4 bits for a weight, so not exactly the published weights",
        ),
        "bert-base-uncased": ModelInfo("BERT base, uncased", 109.5),
        "roberta-base": ModelInfo("RoBERTa base", 124.6),
        "microsoft/deberta-v3-base": ModelInfo("DeBERTa v3 base", 183.8),
        "answerdotai/ModernBERT-base": ModelInfo("ModernBERT base", 149.0),
    }


def resolve_model(name: str) -> str:
    """The path behind the short name of a model that comes with a package; every other name is passed through."""
    return str(embedded_model(name)) if name in INSTALL else name


def why_not_loaded(name: str, error: Exception) -> str:
    """What kept transformers from loading a model, in one line; says how to trust one that brings its own code."""
    if "trust_remote_code" in str(error):
        return f"it comes with code of its own; read that code, and if you trust it, add --trust-remote-code {name}"
    if isinstance(error.__cause__, HFValidationError):
        return "there is no such folder, and a name on the Hub looks like org/model"
    return next(iter(str(error).splitlines()), type(error).__name__)


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


def model_fingerprint(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of the weights, the names of the outputs, the vocabulary, and of the defence around it if there is one."""
    digest = xxhash.xxh3_128()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    facts = [model.config.id2label, sorted(tokenizer.get_vocab().items()), *defence_of(model)]
    digest.update(json.dumps(facts).encode())
    return digest.hexdigest()


def resource_fingerprint(thing: object) -> str | None:
    """The fingerprint of a lexicon, language model, tagger or encoder; without one, what kind of thing it is."""
    if thing is None:
        return None
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return getattr(thing, "fingerprint", f"{kind.__module__}.{kind.__qualname__}")


def folder_fingerprint(name: str) -> str:
    """A hash of the files in a model's folder; the name itself of a model that is not in a folder."""
    folder = Path(resolve_model(name))
    if not folder.is_dir():
        return name
    digest = xxhash.xxh3_64()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)} {file_digest(path)}\n".encode())
    return digest.hexdigest()

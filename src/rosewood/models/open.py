"""Open a model by name, folder or run: resolve its name, look at it on disk, load it for training or for use."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers.utils import logging

from rosewood.config.settings import Lora
from rosewood.data.tasks import Task, load_task
from rosewood.errors import RunError
from rosewood.models.adapters import adapter_folder, base_name, encoder, head_modules, load_merged, with_adapter
from rosewood.models.defended import FILE as DEFENCE
from rosewood.models.defended import Defended
from rosewood.models.names import (
    EXPECTED,
    Outline,
    outline,
    quiet_loading,
    resolve_model,
    shapes_below,
    why_not_loaded,
)
from rosewood.models.onnx import FILE as ONNX
from rosewood.models.onnx import load_onnx
from rosewood.models.scoring import longest_text, text_length
from rosewood.results import RunInfo
from rosewood.results.files import check_there

if TYPE_CHECKING:
    from peft import PeftModel


@dataclass(frozen=True)
class OpenRun:
    """A classifier that can be used, and what is known of it; a checkpoint that is not a run has no `info`."""

    path: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    info: RunInfo | None

    @property
    def folder(self) -> Path | None:
        """The folder of the run."""
        return None if self.info is None else Path(self.path)

    @property
    def max_length(self) -> int:
        """Tokens of a text that the model reads: those of the run, or else of the tokenizer."""
        return text_length(self.model, self.tokenizer) if self.info is None else self.info.max_length

    @property
    def data_dir(self) -> str | None:
        """The folder with the files of the run's task, if it had one."""
        return None if self.info is None else self.info.data_dir

    @cached_property
    def task(self) -> Task:
        """What the run was trained on.

        Raises:
            RunError: If it is a checkpoint, which does not say its task.
        """
        if self.folder is None:
            raise RunError(f"{self.path} is a checkpoint, not a run, and does not say its task: name one")
        return load_task(self.folder / "task.yaml")


def open_run(path: str | Path, trusted: Collection[str] = (), words: bool = False) -> OpenRun:
    """Open a finished run, a checkpoint or an adapter for use.

    Args:
        path: The folder of a run, a folder that `save_pretrained` wrote, or a name on the Hugging Face Hub.
        trusted: The runs and checkpoints whose own code may run; no other code of a checkpoint does.
        words: Whether a model with a label for each word, as for named entities, will do too.

    Returns:
        Model and tokenizer, and what a run knows: `run.task`, `run.data_dir`, `run.max_length`, `run.info`.

    Raises:
        RunError: If the run is not finished, or there is no trained classifier.

    Example:
        >>> run = open_run("runs/rose")  # doctest: +SKIP
        >>> attack(run.model, run.tokenizer, rows, "typos", max_length=run.max_length)  # doctest: +SKIP
    """
    check_there(path)
    info = run_info(path)
    model = str(path) if info is None else str(Path(path) / "model")
    return OpenRun(str(path), *load_classifier(model, bool({str(path), model}.intersection(trusted)), words), info)


def run_info(path: str | Path) -> RunInfo | None:
    """What a finished run says of itself; None if there is no run in this place.

    Raises:
        RunError: If the run is not finished.
    """
    file = Path(path) / "run.json"
    if not file.exists():
        return None
    info = RunInfo.load(file)
    if info.status != "finished":
        advice = f"continue it with rosewood train --output {path} --resume"
        raise RunError(f"{path} is not finished ({info.status}): {advice}")
    return info


def load_classifier(
    path_or_name: str, trust_remote_code: bool = False, words: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and tokenizer of a trained classifier: a whole model, an adapter that names its base model, or either
    of them with a defence around it.

    Args:
        path_or_name: a folder, or a name on the Hub. Weights must be in safetensors.
        trust_remote_code: whether code that comes with the checkpoint may run; that of the base model that an adapter
            names never does.
        words: whether a model with a label for each word is welcome too.

    Returns:
        The model and its tokenizer.

    Raises:
        RunError: there is no such checkpoint, it cannot be loaded, or it has no trained classification head.

    Example:
        >>> model, tokenizer = load_classifier("runs/rose/model")  # doctest: +SKIP
    """
    logging.disable_progress_bar()  # the bar of transformers for loading says nothing at this size
    if (Path(path_or_name) / DEFENCE).is_file():
        wrapped = Defended.from_pretrained(path_or_name)
        return wrapped, wrapped.tokenizer
    if (Path(path_or_name) / ONNX).is_file() and not (Path(path_or_name) / "model.safetensors").exists():
        return load_onnx(Path(path_or_name))
    try:
        if (folder := adapter_folder(path_or_name)) is not None:
            return _load_adapted(folder)
        by_word = words and _labels_words(path_or_name, trust_remote_code)
        kind: Any = AutoModelForTokenClassification if by_word else AutoModelForSequenceClassification
        model, loaded = kind.from_pretrained(
            path_or_name, use_safetensors=True, trust_remote_code=trust_remote_code, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(path_or_name, trust_remote_code=trust_remote_code)
    except RunError:
        raise
    except Exception as error:  # what a damaged checkpoint makes transformers say has no common type
        if "/" not in path_or_name and isinstance(error, OSError) and not Path(path_or_name).exists():
            raise RunError(
                f"there is no run or checkpoint {path_or_name}: no folder is called so here, and a model on the "
                "Hugging Face Hub, nearly always org/model, was not found or cannot be reached"
            ) from error
        raise RunError(
            f"cannot load a classifier from {path_or_name}: {why_not_loaded(path_or_name, error)}\n"
            "Expected a folder (or the name of a model) with config.json, model.safetensors "
            "and the files of its tokenizer; or with adapter_config.json and adapter_model.safetensors."
        ) from error
    if loaded["missing_keys"]:
        raise RunError(
            f"{path_or_name} is not a trained classifier: it has no weights for "
            f"{', '.join(sorted(loaded['missing_keys']))}, which would be random. Fine-tune it first."
        )
    check_vocabulary(tokenizer, path_or_name, model)
    set_padding(model, tokenizer)
    return model, tokenizer


def _labels_words(path_or_name: str, trust_remote_code: bool) -> bool:
    config = AutoConfig.from_pretrained(path_or_name, trust_remote_code=trust_remote_code)
    return any(name.endswith("ForTokenClassification") for name in config.architectures or ())


def load_language_model(
    kind: Any, name: str, what: str, example: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A masked or causal language model by path or Hub name, with its tokenizer; no code of a checkpoint runs.

    Raises:
        RunError: If it cannot be loaded, or has no trained head that predicts words.
    """
    path = resolve_model(name)
    try:
        model, loaded = kind.from_pretrained(
            path, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except Exception as error:  # what a damaged checkpoint makes transformers say has no common type
        raise RunError(
            f"cannot load a {what} language model from {name}: {why_not_loaded(name, error)}\n"
            "Expected a folder (or the name of a model) with config.json, model.safetensors "
            f"and the files of its tokenizer, such as {example}."
        ) from error
    if loaded["missing_keys"]:
        raise RunError(
            f"{name} is not a {what} language model: it has no weights for "
            f"{', '.join(sorted(loaded['missing_keys']))}. Take one that was trained as such, for example {example}."
        )
    check_vocabulary(tokenizer, name, model)
    return model, tokenizer


def _load_adapted(adapter: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    base = base_name(adapter)
    try:
        model = load_merged(adapter, base)
        return model, _tokenizer_of(adapter, base, model)
    except RunError:
        raise
    except Exception as error:
        raise RunError(
            f"cannot load a classifier from {adapter}, an adapter of {base}: "
            f"{next(iter(str(error).splitlines()), type(error).__name__)}\n"
            "Expected an adapter and a base model in safetensors, the base model without code of its own. If it has "
            "moved, change base_model_name_or_path in adapter_config.json."
        ) from error


def _tokenizer_of(adapter: Path, base: str, model: PreTrainedModel) -> PreTrainedTokenizerBase:
    """An adapter may bring a tokenizer; otherwise it is that of its base model."""
    own = (adapter / "tokenizer_config.json").exists()
    name = str(adapter) if own else base
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    check_vocabulary(tokenizer, name, model)
    return tokenizer


def set_padding(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Give GPT-2, Llama and the like, which come without a padding token, the end of a text as one."""
    if model.config.pad_token_id is None:
        # Classification needs to know where a text ends.
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        model.config.pad_token_id = tokenizer.pad_token_id


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, path_or_name: str, model: PreTrainedModel) -> None:
    """Refuse a tokenizer that does not belong to the model.

    If a checkpoint has no tokenizer files, transformers makes an empty tokenizer without a word. A tokenizer of another
    model may know words for which the embedding has no row.
    """
    vocabulary = tokenizer.get_vocab()
    if set(vocabulary) <= set(tokenizer.all_special_tokens):
        raise RunError(
            f"{path_or_name} has no vocabulary. Copy the files of the tokenizer it was trained with beside its weights."
        )
    try:
        rows = getattr(model.get_input_embeddings(), "num_embeddings", None)
    except NotImplementedError:  # models that embed something other than words
        return
    largest = max(vocabulary.values())
    if rows is not None and largest >= rows:
        raise RunError(
            f"{path_or_name}: its tokenizer counts words up to number {largest}, and the model has embeddings for "
            f"{rows} words only. Copy the files of the tokenizer it was trained with beside its weights."
        )


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
        raise RunError(f"{type(model).__name__} has no encoder apart from its head: --new-head cannot replace it")
    set_seed(seed)
    fresh = AutoModelForSequenceClassification.from_config(model.config, trust_remote_code=trust_remote_code)
    for name in head_modules(model):
        setattr(model, name, getattr(fresh, name).to(device=model.device, dtype=model.dtype))

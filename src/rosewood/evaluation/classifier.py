"""A trained classifier from disk."""

from pathlib import Path

from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from rosewood.data.models import why_not_loaded
from rosewood.errors import RunError
from rosewood.evaluation.adapter import adapter_folder, base_name, load_merged


def load_classifier(
    path_or_name: str, trust_remote_code: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and tokenizer of a trained classifier: a whole model, or an adapter that names its base model.

    Weights must be in safetensors, and code that comes with a checkpoint is run only if it is trusted; that of the
    base model that an adapter names is never.
    """
    try:
        if (folder := adapter_folder(path_or_name)) is not None:
            return _load_adapted(folder)
        model, loaded = AutoModelForSequenceClassification.from_pretrained(
            path_or_name, use_safetensors=True, trust_remote_code=trust_remote_code, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(path_or_name, trust_remote_code=trust_remote_code)
    except RunError:
        raise
    except Exception as error:  # what a damaged checkpoint makes transformers say has no common type
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

    Of a checkpoint without tokenizer files transformers makes an empty one, silently; that of another model may know
    words for which the embedding has no row.
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

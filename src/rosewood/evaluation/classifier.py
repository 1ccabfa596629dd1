"""A trained classifier from disk."""

from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from rosewood.data.models import why_not_loaded
from rosewood.errors import RunError


def load_classifier(
    path_or_name: str, trust_remote_code: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and tokenizer of a trained classifier.

    Weights must be in safetensors, and code that comes with a checkpoint is run only if it is trusted.
    """
    try:
        model, loaded = AutoModelForSequenceClassification.from_pretrained(
            path_or_name, use_safetensors=True, trust_remote_code=trust_remote_code, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(path_or_name, trust_remote_code=trust_remote_code)
    except Exception as error:  # what a damaged checkpoint makes transformers say has no common type
        raise RunError(
            f"cannot load a classifier from {path_or_name}: {why_not_loaded(path_or_name, error)}\n"
            "Expected a folder (or the name of a model) with config.json, model.safetensors "
            "and the files of its tokenizer."
        ) from error
    if loaded["missing_keys"]:
        raise RunError(
            f"{path_or_name} is not a trained classifier: it has no weights for "
            f"{', '.join(sorted(loaded['missing_keys']))}, which would be random. Fine-tune it first."
        )
    check_vocabulary(tokenizer, path_or_name)
    return model, tokenizer


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, path_or_name: str) -> None:
    """Refuse the empty tokenizer that transformers makes, silently, of a checkpoint without tokenizer files."""
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise RunError(
            f"{path_or_name} has no vocabulary. Copy the files of the tokenizer it was trained with beside its weights."
        )

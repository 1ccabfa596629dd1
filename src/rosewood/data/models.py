"""Short names for models: the one that comes with the demo extra, and well-known ones on the Hub."""

from dataclasses import dataclass

from rosewood.data.embedded import embedded_model


@dataclass(frozen=True)
class ModelInfo:
    """What a list of models shows about one of them."""

    title: str
    millions: float
    """Parameters in millions, without a task head."""
    needs_hub: bool
    note: str = ""


def models() -> dict[str, ModelInfo]:
    """The known model names; any other Hub name or local path works too."""
    return {
        "minilm": ModelInfo(
            "all-MiniLM-L6-v2, from the demo extra",
            22.7,
            needs_hub=False,
            note="tuned on sentence pairs that include SNLI, MNLI and Quora duplicates: say so beside "
            "any NLI or QQP figure",
        ),
        "bert-base-uncased": ModelInfo("BERT base, uncased", 109.5, needs_hub=True),
        "roberta-base": ModelInfo("RoBERTa base", 124.6, needs_hub=True),
        "microsoft/deberta-v3-base": ModelInfo("DeBERTa v3 base", 183.8, needs_hub=True),
        "answerdotai/ModernBERT-base": ModelInfo("ModernBERT base", 149.0, needs_hub=True),
    }


def resolve_model(name: str) -> str:
    """The path behind the alias `minilm`; every other name is passed through."""
    return str(embedded_model()) if name == "minilm" else name


def why_not_loaded(name: str, error: Exception) -> str:
    """What kept transformers from loading a model, in one line; says how to trust one that brings its own code."""
    if "trust_remote_code" in str(error):
        return f"it comes with code of its own; read that code, and if you trust it, add --trust-remote-code {name}"
    return next(iter(str(error).splitlines()), type(error).__name__)

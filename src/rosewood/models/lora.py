"""LoRA: small trainable matrices beside the linear layers of a model that itself stands still."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelCardData
from transformers import PreTrainedModel

from rosewood.config.settings import Lora
from rosewood.errors import RunError
from rosewood.models.adapters import encoder

if TYPE_CHECKING:
    from peft import PeftModel


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

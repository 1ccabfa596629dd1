"""Classifiers as ONNX files: written with torch, and opened again as a model that scores texts.

The folder has the layout of Optimum: model.onnx, config.json and the files of the tokenizer. What is opened has no
weights that could be trained and no gradients; everything that only asks for scores works on it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import SequenceClassifierOutput

from rosewood.data.files import file_digest
from rosewood.errors import RunError
from rosewood.models.defended import Defended
from rosewood.models.scoring import Scorer

FILE = "model.onnx"
TOLERANCE = 1e-3
_TEXTS = [("a text",), ("another text, which is a little longer",)]  # of two lengths, so that one is padded


def export_onnx(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> float:
    """Write a classifier as an ONNX file that takes any number of texts of any length.

    Args:
        model: a classifier; not one inside a defence, which is more than a network.
        tokenizer: its tokenizer, which is written beside it.
        folder: where the files go.

    Returns:
        The largest difference between a logit of the model and of the file, on texts other than those it was traced
        with.

    Raises:
        RunError: a package is missing, the model cannot be exported, or the file gives other scores.
    """
    _check_packages()
    if isinstance(model, Defended):
        raise RunError("a wrapped model is more than a network and has no ONNX form: export the model that it wraps")
    folder.mkdir(parents=True, exist_ok=True)
    encoded = tokenizer([text for (text,) in _TEXTS], padding=True, return_tensors="pt")
    inputs = {name: encoded[name] for name in encoded}
    free = {name: {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for name in inputs}
    training, model = model.training, model.eval().cpu()
    try:
        torch.onnx.export(
            model,
            (),
            folder / FILE,
            kwargs=inputs,
            input_names=list(inputs),
            output_names=["logits"],
            dynamic_shapes=free,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    except Exception as error:  # the exporter's own, one for each way in which a model can be too clever
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RunError(f"torch cannot export {type(model).__name__} to ONNX: {reason}") from error
    finally:
        model.train(training)
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return _difference(model, OnnxClassifier.from_pretrained(folder), tokenizer)


def _difference(model: PreTrainedModel, exported: OnnxClassifier, tokenizer: PreTrainedTokenizerBase) -> float:
    texts = [("one text alone",), ("x",), ("three texts of other lengths than those that the model was traced with",)]
    training = model.training
    model.eval()
    both = [
        np.concatenate([scored.logits for scored in Scorer(each, tokenizer).batches(texts)])
        for each in (model, exported)
    ]
    model.train(training)
    found = float(np.abs(both[0] - both[1]).max())
    if found > TOLERANCE:
        raise RunError(
            f"the exported file gives other scores than the model: a logit differs by {found:.2g}. "
            f"{exported.folder / FILE} is not to be used"
        )
    return found


class OnnxClassifier(PreTrainedModel):
    """A classifier in an ONNX file, run by onnxruntime on the processor."""

    def __init__(self, config: PretrainedConfig, folder: Path) -> None:
        import onnxruntime

        super().__init__(config)
        self.folder = folder
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self.session = onnxruntime.InferenceSession(folder / FILE, options, providers=["CPUExecutionProvider"])
        # Part of the fingerprint of the model, as weights are.
        digest = torch.frombuffer(bytearray(file_digest(folder / FILE).encode()), dtype=torch.uint8)
        self.register_buffer("digest", digest.clone())
        self.name_or_path = str(folder)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @torch.inference_mode()
    def forward(self, **inputs: Tensor) -> SequenceClassifierOutput:
        """The scores of tokenized texts; inputs that the file does not have are left out."""
        known = {each.name for each in self.session.get_inputs()}
        given = {name: value.cpu().numpy() for name, value in inputs.items() if name in known}
        (logits,) = self.session.run(["logits"], given)
        return SequenceClassifierOutput(logits=torch.from_numpy(logits))  # type: ignore[arg-type]

    @classmethod
    def from_pretrained(cls, folder: Any, *_: Any, **__: Any) -> Self:  # type: ignore[override]
        """The model in a folder that `export_onnx` wrote."""
        _check_packages()
        path = Path(folder)
        return cls(AutoConfig.from_pretrained(path, trust_remote_code=False), path).eval()

    def __reduce__(self) -> Any:
        return OnnxClassifier.from_pretrained, (str(self.folder),)

    def _init_weights(self, module: Any) -> None:
        """There are none."""


def load_onnx(folder: Path) -> tuple[OnnxClassifier, PreTrainedTokenizerBase]:
    """The classifier in an ONNX file, and its tokenizer."""
    return OnnxClassifier.from_pretrained(folder), AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def _check_packages() -> None:
    missing = [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]
    if missing:
        raise RunError(f"ONNX needs {', '.join(missing)}: pip install 'rosewood[onnx]'")

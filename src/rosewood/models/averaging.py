"""Averages of trained weights: of several runs (soups), and with the pre-trained model they come from (WiSE-FT)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModel

from rosewood.errors import RosewoodError, RunError
from rosewood.models.names import quiet_loading, resolve_model
from rosewood.models.open import outline_of
from rosewood.models.origin import named_origin
from rosewood.results import Average, AveragedRun, RunInfo
from rosewood.results.files import new_folder
from rosewood.results.run import typed_command


def average(
    runs: Sequence[str | Path],
    output: str | Path,
    weights: Sequence[float] | None = None,
    pretrained_share: float = 0.0,
    pretrained: str | None = None,
) -> RunInfo | None:
    """Write a run directory whose model is the weighted mean of those of some runs.

    A checkpoint of another library does too: `pretrained` names the model that it was fine-tuned from, where it does
    not itself name one that is on this machine; a run knows it. If the first is a checkpoint, so is the result, and
    there is no RunInfo to return.

    Without `weights` all runs count the same (uniform soup: Wortsman et al., ICML 2022). The share
    `pretrained_share` of the result comes from the pre-trained model, except for the head, which that model lacks
    (WiSE-FT: Wortsman et al., CVPR 2022, whose alpha is 1 - pretrained_share). Tokenizer, task and text length come
    from the first run. Tensors are read one by one and summed in float64, so that memory stays at about one model.
    """
    began = time.monotonic()
    folders, output = [Path(run) for run in runs], Path(output)
    if output.exists():
        raise RunError(f"{output} exists already: choose another --output")
    if len(folders) == 1 and pretrained_share == 0:
        raise RunError(
            "there is nothing to average: name a second run, or mix in the pre-trained model with --with-pretrained 0.5"
        )
    shares = _normalised(weights, len(folders))
    sources = [_source(folder, pretrained) for folder in folders]
    first = sources[0]
    if pretrained_share and first.origin is None:
        raise RunError(
            f"the model that {first.folder} was fine-tuned from is not known ({first.unknown}): name it with "
            "--pretrained MODEL"
        )
    for other in sources[1:]:
        _check_alike(first, other)
    start = _pretrained(str(first.origin), first.weights) if pretrained_share else {}
    # Each pre-trained tensor is let go when its mean is there.
    tensors = {
        name: _mean([source.weights[name] for source in sources], shares, start.pop(name, None), pretrained_share)
        for name in first.weights.names()
    }
    made_of = Average(
        runs=[source.described(share) for source, share in zip(sources, shares, strict=True)],
        pretrained=first.origin if pretrained_share else None,
        pretrained_share=pretrained_share,
    )
    info = None if first.info is None else _describe(first.info, time.monotonic() - began)
    _write(first, output, tensors, made_of, info)
    return info


class Weights:
    """The tensors of a saved model, read from disk when they are asked for."""

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise RunError(f"{folder} has no weights: expected model.safetensors, or several shards of it")
        try:
            opened = [safe_open(file, framework="pt") for file in files]
            self._files = {name: file for file in opened for name in file.keys()}  # noqa: SIM118 - no mapping
            self.config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, SafetensorError, ValueError, RecursionError) as error:
            raise RunError(f"the model in {folder} cannot be read: {error}") from None
        if not isinstance(self.config, dict):
            raise RunError(f"the model in {folder} cannot be read: its config.json holds no object")

    def names(self) -> list[str]:
        return list(self._files)

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._files[name].get_tensor(name)
        return tensor

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(file.get_slice(name).get_shape()) for name, file in self._files.items()}


def _normalised(weights: Sequence[float] | None, count: int) -> list[float]:
    if weights is None:
        return [1 / count] * count
    if len(weights) != count:
        raise RunError(f"expected one weight for each of the {count} runs, got {len(weights)}")
    if min(weights) < 0 or sum(weights) <= 0:
        raise RunError(f"weights must not be negative, and not all 0: got {', '.join(map(str, weights))}")
    return [weight / sum(weights) for weight in weights]


class WeightSource(NamedTuple):
    """A run, or a checkpoint of another library, whose weights are averaged."""

    folder: Path
    info: RunInfo | None
    model: Path
    """The folder with the weights."""
    weights: Weights
    origin: str | None
    """The pre-trained model it was fine-tuned from, if that is known."""
    unknown: str = ""
    """Why it is not."""

    def described(self, share: float) -> AveragedRun:
        recipe, seed = ("checkpoint", None) if self.info is None else (self.info.recipe, self.info.seed)
        return AveragedRun(run=str(self.folder), recipe=recipe, seed=seed, weight=share)


def _source(folder: Path, pretrained: str | None) -> WeightSource:
    if (folder / "adapter_config.json").exists():
        raise RunError(
            f"{folder} holds an adapter, and only whole weights can be averaged: name the run it belongs to, in whose "
            "model/ it is merged"
        )
    if (folder / "run.json").exists():
        info = RunInfo.load(folder / "run.json")
        if info.status != "finished":
            raise RunError(f"{folder} is not finished ({info.status}): only finished runs can be averaged")
        return WeightSource(
            folder, info, folder / "model", Weights(folder / "model"), pretrained or info.pretrained or info.model
        )
    if not (folder / "config.json").exists():
        raise RunError(
            f"{folder} cannot be averaged: expected a finished run (with run.json) or a checkpoint (with config.json)"
        )
    weights = Weights(folder)
    if pretrained is not None:
        return WeightSource(folder, None, folder, weights, pretrained)
    try:
        found = named_origin(str(folder), outline_of(str(folder)))
    except RosewoodError as error:
        found = str(error).splitlines()[0]
    if isinstance(found, str):
        return WeightSource(folder, None, folder, weights, None, found)
    return WeightSource(folder, None, folder, weights, found.name)


def _check_alike(first: WeightSource, other: WeightSource) -> None:
    """Refuse models whose weights do not mean the same."""
    source, other_source = first.weights, other.weights
    kinds = [
        ("is another architecture", *(s.config.get("architectures") for s in (source, other_source))),
        ("has other labels", *(list(s.config.get("id2label", {}).values()) for s in (source, other_source))),
    ]
    # Two checkpoints need not say it; a run that is averaged with a checkpoint must.
    if first.info or other.info or None not in (first.origin, other.origin):
        kinds.append(("started from another pre-trained model", *(_origin(each.origin) for each in (first, other))))
    problems = [f"{what} ({theirs}, not {ours})" for what, ours, theirs in kinds if ours != theirs]
    ours, theirs = source.shapes(), other_source.shapes()
    differing = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
    if differing:
        name = differing[0]
        problems.append(f"has weights of other shapes ({name}: {theirs.get(name)}, not {ours.get(name)})")
    if problems:
        raise RunError(f"{other.folder} cannot be averaged with {first.folder}: it {', and '.join(problems)}")


def _origin(model: str | None) -> str:
    if model is None:
        return "not known, name it with --pretrained"
    path = Path(resolve_model(model))
    return str(path.resolve()) if path.exists() else model


def _pretrained(name: str, source: Weights) -> dict[str, Tensor]:
    """The weights that the pre-trained model has, under the names they have in the fine-tuned one."""
    try:
        with quiet_loading():
            model, loaded = AutoModel.from_pretrained(
                resolve_model(name), use_safetensors=True, trust_remote_code=False, output_loading_info=True
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise RunError(f"the pre-trained model {name!r} cannot be loaded: {str(error).splitlines()[0]}") from None
    prefix, new = model.base_model_prefix, set(loaded["missing_keys"])
    tensors = {f"{prefix}.{key}": tensor for key, tensor in model.state_dict().items() if key not in new}
    shapes = source.shapes()
    common = {key: tensor for key, tensor in tensors.items() if key in shapes}
    differing = [key for key, tensor in common.items() if tuple(tensor.shape) != shapes[key]]
    if differing or not common:
        what = f"{differing[0]} has another shape there" if differing else "they have no weight in common"
        raise RunError(f"the run cannot be averaged with its pre-trained model {name!r}: {what}")
    return common


def _mean(tensors: list[Tensor], shares: list[float], pretrained: Tensor | None, pretrained_share: float) -> Tensor:
    first = tensors[0]
    if not first.is_floating_point():
        return first
    total = shares[0] * first.double()
    for tensor, share in zip(tensors[1:], shares[1:], strict=True):
        total.add_(tensor, alpha=share)
    if pretrained is not None:
        total.lerp_(pretrained.double(), pretrained_share)
    return total.to(first.dtype)


def _describe(first: RunInfo, seconds: float) -> RunInfo:
    return RunInfo(
        recipe="average",
        task=first.task,
        model=first.model,
        pretrained=first.pretrained,
        seed=first.seed,
        data_dir=first.data_dir,
        fingerprints={},
        train_size=first.train_size,
        validation_size=first.validation_size,
        max_length=first.max_length,
        training_arguments={},
        command=typed_command(),
        status="finished",
        seconds=round(seconds, 3),
    )


def _write(
    first: WeightSource, output: Path, tensors: dict[str, Tensor], made_of: Average, info: RunInfo | None
) -> None:
    with new_folder(output) as folder:
        model = folder / first.model.relative_to(first.folder)
        model.mkdir(parents=True, exist_ok=True)
        for file in first.model.iterdir():
            if file.suffix in (".json", ".txt", ".model", ".jinja") and not file.name.endswith(".index.json"):
                shutil.copy(file, model)
        save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
        made_of.save(folder / "average.json")
        if info is not None:
            shutil.copy(first.folder / "task.yaml", folder)
            info.save(folder / "run.json")

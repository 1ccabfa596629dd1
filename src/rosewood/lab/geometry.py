"""The geometry of features before and after fine-tuning, in two dimensions (RIFT, Figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from rich.progress import track
from sklearn.manifold import TSNE
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.data.loading import load_split
from rosewood.data.tasks import load_task
from rosewood.errors import RunError
from rosewood.lab.losses import finished_run
from rosewood.models.features import SummaryVectors
from rosewood.models.modes import accelerated, evaluating
from rosewood.models.open import load_pretrained, open_run
from rosewood.protocol import Batch, Output
from rosewood.results import ResultFile

Floats = NDArray[np.float64]
Place = tuple[float, float]
STUDENT_RADIUS, TEACHER_RADIUS = 1.0, 0.9
FILE = "geometry.json"


class Geometry(ResultFile):
    """What `geometry.json` says: where each example's features lie, before fine-tuning (teacher) and after (student).

    `teacher` and `student` are t-SNE maps of one model each; `teacher_circle` and `student_circle` are a common map of
    both, each point pushed out to its model's radius. The other numbers are of the features themselves, at length 1:
    `alignment` is the mean cosine between an example's two vectors, `alignment_of_others` that between vectors of
    different examples of the same class, and uniformity log E exp(-2 |x - y|^2) over pairs, lower where they spread.
    """

    run: str
    pretrained: str
    split: str
    seed: int
    labels: list[str]
    classes: list[Annotated[int, Field(ge=0)]]
    teacher: list[Place]
    student: list[Place]
    teacher_circle: list[Place]
    student_circle: list[Place]
    alignment: float
    alignment_of_others: float
    teacher_uniformity: float
    student_uniformity: float


def geometry(
    run: str | Path,
    split: str | None = None,
    examples: int = 500,
    data_dir: str | Path | None = None,
    seed: int = 0,
    batch_size: int = 64,
) -> Geometry:
    """Compare the features of a finished run with those of its pre-trained model, and write RUN/geometry.json.

    A feature is the vector in which the encoder sums up a text (`SummaryVectors`, the pooler's output if there is one).
    Deviations from the paper: its heads g and h, which map features to the sphere while RIFT trains, are dropped with
    the end of training, so that here the encoder's own vectors are compared; and how the paper came from those to
    the circle is not said: here both models' vectors, at length 1, share one t-SNE map, centred and then pushed out.
    """
    run = Path(run)
    info = finished_run(run)
    task = load_task(run / "task.yaml")
    split = split or ("test" if "test" in task.splits else "validation")
    data = load_split(task, split, data_dir or info.data_dir, examples, seed)
    if len(data) < 5:
        raise RunError(
            f"a map needs at least 5 examples, and the split {split} has {len(data)}: choose another --split"
        )
    texts = list(zip(*(data[field][:] for field in task.text), strict=True))
    student = open_run(run)
    pretrained, _ = load_pretrained(info.model, task, info.seed)
    assert isinstance(pretrained, PreTrainedModel)  # an adapter was not asked for
    found = {
        "before": features(
            accelerated(pretrained), student.tokenizer, texts, info.max_length, batch_size, "before fine-tuning"
        ),
        "after": features(
            accelerated(student.model), student.tokenizer, texts, info.max_length, batch_size, "after fine-tuning"
        ),
    }
    result = _mapped(found["before"], found["after"], np.array(data["label"][:]), seed)
    made = Geometry(run=str(run), pretrained=info.model, split=split, seed=seed, labels=task.labels, **result)
    made.save(run / FILE)
    return made


def features(
    classifier: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[tuple[str, ...]],
    max_length: int,
    batch_size: int = 64,
    title: str = "features",
) -> Floats:
    """The summary vector of each text, `(texts, width)`, at length 1."""

    def plain(batch: Batch, model: nn.Module | None = None) -> Output:
        logits = classifier(**batch).logits
        return Output(logits.sum(), logits)

    vectors = SummaryVectors(classifier, "pooler")
    call, rows = vectors.watching(plain), []
    try:
        with evaluating(classifier), torch.inference_mode():
            for start in track(range(0, len(texts), batch_size), description=title, transient=True):
                columns = [list(column) for column in zip(*texts[start : start + batch_size], strict=True)]
                options: dict[str, Any] = {"truncation": True, "max_length": max_length, "padding": True}
                batch = tokenizer(*columns, **options, return_tensors="pt").to(classifier.device)
                output = call(batch)
                assert output.features is not None
                rows.append(output.features.double().cpu().numpy())
    finally:
        vectors.stop()
    found = np.concatenate(rows)
    return found / np.linalg.norm(found, axis=1, keepdims=True).clip(min=1e-12)


def on_circle(places: Floats, radius: float) -> Floats:
    """Points pushed out from the origin, or pulled in, until they lie on the circle."""
    lengths = np.linalg.norm(places, axis=1, keepdims=True)
    directions = np.divide(places, lengths, out=np.tile([1.0, 0.0], (len(places), 1)), where=lengths > 0)
    return radius * directions


def uniformity(vectors: Floats) -> float:
    """log E exp(-2 |x - y|^2) over pairs of different vectors (Wang and Isola, 2020)."""
    cosines = (vectors @ vectors.T)[np.triu_indices(len(vectors), k=1)]
    return float(np.log(np.mean(np.exp(-2 * (2 - 2 * cosines)))))


def alignments(teacher: Floats, student: Floats, classes: NDArray[np.int64]) -> tuple[float, float]:
    """The mean cosine of the two vectors of an example, and of those of different examples of a class, NaN if none."""
    cosines = teacher @ student.T
    others = (classes[:, None] == classes[None, :]) & ~np.eye(len(classes), dtype=bool)
    return float(np.diag(cosines).mean()), float(cosines[others].mean()) if others.any() else float("nan")


def _mapped(teacher: Floats, student: Floats, classes: NDArray[np.int64], seed: int) -> dict[str, Any]:
    wanted = track([teacher, student, np.concatenate([teacher, student])], description="maps", transient=True)
    before, after, common = (_tsne(vectors, seed) for vectors in wanted)
    common -= common.mean(axis=0)
    circles: dict[Literal["teacher", "student"], Floats] = {
        "teacher": on_circle(common[: len(teacher)], TEACHER_RADIUS),
        "student": on_circle(common[len(teacher) :], STUDENT_RADIUS),
    }
    own, others = alignments(teacher, student, classes)
    return {
        "classes": classes.tolist(),
        "teacher": _places(before),
        "student": _places(after),
        "teacher_circle": _places(circles["teacher"]),
        "student_circle": _places(circles["student"]),
        "alignment": own,
        "alignment_of_others": others,
        "teacher_uniformity": uniformity(teacher),
        "student_uniformity": uniformity(student),
    }


def _tsne(vectors: Floats, seed: int) -> Floats:
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    found: Floats = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(vectors)
    return found.astype(np.float64)


def _places(points: Floats) -> list[Place]:
    return [(float(f"{x:.6g}"), float(f"{y:.6g}")) for x, y in points]

"""Informative fine-tuning: features that stay predictive of the pre-trained ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from rosewood.models.adapters import low_rank_changes, start_problems
from rosewood.models.features import Feature, FeatureFile, SummaryVectors, row_keys, summary_problems
from rosewood.models.parameters import LentWeights, PretrainedTether, attached, pretrained_names
from rosewood.protocol import Anchor, Batch, Call, Cost, Pass, Progress, Run, Term, Weight, weight_at
from rosewood.tensors.shards import anywhere, are_divided, cut, from_all, gathered, part, rank, whole, whole_beside

if TYPE_CHECKING:
    from rosewood.recipe import Stage

Size = Annotated[int, Field(ge=1)]
ClassWeights = Literal["frequency", "equal"]


@dataclass(frozen=True)
class Informative(Anchor):
    """Adds `weight` (alpha) times an InfoNCE loss, which maximises a lower bound of the information that the features
    keep about the pre-trained model's, given the class: I(S; T | Y) (RIFT: Dong et al., NeurIPS 2021, Lemma 1, Eq. 10).

    S are the features of the model being trained, of the perturbed input if there is one; T are those of the frozen
    pre-trained model, of the clean input, without dropout. Among the N examples of a class y in a batch,

      L_y = - 1/N sum_i log [exp f_y(s_i, t_i) / sum_j exp f_y(s_i, t_j)]
      f_y(s, t) = cos(g_y(s), h_y(t)) / temperature

    and the loss is the mean of L_y over the classes, each as often as it occurs in the batch. g_y and h_y are
    Linear-ReLU-Linear, trained with the model and dropped afterwards. A class with one example adds 0.
    `conditional=False` is the paper's ablation I(S; T): one g and one h, and all examples are compared with each other.

    Settings where paper and official code differ:
    - `normalise_over`: the sum over j runs over the teachers' features for each student's (paper), or over the
      students' for each teacher's (code).
    - `class_weights`: `frequency` weighs L_y by the share of the class in the batch, for p(y) in Eq. 10 (paper);
      `equal` weighs the classes of a batch alike (code, whose batches have equally many examples of each).
    - `feature`: `pooler` is the pooler's output (code), or the summary token where a model has no pooler in its base
      model; `token` is the summary token's vector of the last layer (paper): the first token, or the last one in
      decoders, encoder-decoder models and XLNet.
    - `batches`: `stratified` has all classes in each batch, in the proportions of the data (the code takes equally
      many of each); `one_class` has one class per batch (paper), and the examples left over come last, mixed; `mixed`
      leaves the order to the trainer. The first two go before a train_sampling_strategy.
    - `own_pass`: the features come from one more pass over the perturbed input with fresh dropout (code), or from the
      pass that gave the logits.

    Deviations: the paper's constant -log N, which moves nothing, is left out. Under gradient accumulation examples are
    compared within their micro-batch; over several processes, with those of all. `cache` keeps the teacher's features
    in a file in the trainer's output folder, so that it runs in the first epoch only; models divided by FSDP2 have no
    cache. RoBERTa's classifier has no pooler, where the code uses a new one. The heads of all classes are one tensor,
    so those of a class that a batch lacks get a gradient of 0, and momentum and decay still move them.
    """

    needs_pretrained = True

    weight: Weight = 0.1
    conditional: bool = True
    normalise_over: Literal["teacher", "student"] = "teacher"
    class_weights: ClassWeights = "frequency"
    temperature: Annotated[float, Field(gt=0)] = 0.2
    own_pass: bool = True
    feature: Feature = "pooler"
    hidden: Size = 512
    out: Size = 256
    batches: Literal["stratified", "one_class", "mixed"] = "stratified"
    cache: bool = True

    def batch_order(self) -> Literal["stratified", "one_class"] | None:
        return None if self.batches == "mixed" else self.batches

    def modules(self, model: nn.Module, seed: int) -> nn.Module:
        generator = torch.Generator().manual_seed(seed)
        like = next(p for p in model.parameters() if p.requires_grad)
        config: Any = model.config
        sizes = (config.num_labels if self.conditional else 1, config.hidden_size, self.hidden, self.out)
        return nn.ModuleDict({side: Projections(*sizes, generator, like) for side in ("student", "teacher")})

    def cost(self, stage: Stage) -> Cost:
        """The teacher's pass, which the cache spares after the first epoch, and the pass for the features."""
        return Cost(forward=2, backward=1) if self.own_pass else Cost(forward=1)

    def memory(self) -> str:
        return "pre-trained weights, projection heads" + (", third graph" if self.own_pass else "")

    def explain(self, stage: Stage) -> list[str]:
        given = ", given the class" if self.conditional else ""
        over = "t of every s" if self.normalise_over == "teacher" else "s of every t"
        peers = "class of the batch" if self.conditional else "whole batch"
        once = ", computed once" if self.cache else ""
        return [
            f"loss += {self.weight:g} * informative,  informative = InfoNCE between s and t{given}",
            f"s = {self.feature} of " + ("one more pass" if self.own_pass else "the pass that gave the logits"),
            f"t = {self.feature} of the clean input at theta0, without dropout{once}",
            f"InfoNCE = - mean log softmax(cos(g(s), h(t)) / {self.temperature:g}), over the {over}, within a {peers}",
            *(["all classes of a batch weigh alike"] if self.conditional and self.class_weights == "equal" else []),
        ]

    def problems(self, stage: Stage) -> list[str]:
        if stage.selection.name == "linear_probe":
            return [
                "anchor informative acts on the features of the encoder, which selection linear_probe does not move: "
                "leave it out of this stage (anchors: [])"
            ]
        if not self.own_pass or (stage.perturbation is not None and stage.perturbation.repeatable):
            return []
        found = "none" if stage.perturbation is None else f"{stage.perturbation.name}, which cannot be repeated"
        return [
            "anchor informative with own_pass=true runs the perturbed input once more, and the perturbation is "
            f"{found}: set own_pass=false, and the features come from the pass that gives the logits"
        ]

    def problems_with(self, model: nn.Module) -> list[str]:
        return summary_problems(model, "anchor informative") or start_problems(model, "anchor informative")

    def start(self, run: Run) -> InformativeTether:
        return InformativeTether(self, run)


class Projections(nn.Module):
    """A Linear-ReLU-Linear for each class, all of them at once."""

    def __init__(
        self, classes: int, width: int, hidden: int, out: int, generator: torch.Generator, like: Tensor
    ) -> None:
        super().__init__()

        def drawn(inputs: int, *shape: int) -> nn.Parameter:
            # As nn.Linear does, but equal on all processes and without touching the training's random numbers.
            values = torch.empty(classes, *shape, dtype=torch.float64).uniform_(-1, 1, generator=generator)
            return nn.Parameter((values / inputs**0.5).to(like))

        self.first_weight, self.first_bias = drawn(width, width, hidden), drawn(width, 1, hidden)
        self.second_weight, self.second_bias = drawn(hidden, hidden, out), drawn(hidden, 1, out)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """What the projection of its class makes of each example's features, `(examples, out)`."""
        names = ("first_weight", "first_bias", "second_weight", "second_bias")
        weight, bias, last_weight, last_bias = (whole_beside(getattr(self, name)) for name in names)
        everywhere = features.to(weight.dtype).expand(len(weight), *features.shape)
        hidden = torch.baddbmm(bias, everywhere, weight).relu()
        projected = torch.baddbmm(last_bias, hidden, last_weight)
        return projected[labels, torch.arange(len(labels), device=labels.device)]


def info_nce(
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    temperature: float,
    over: Literal["teacher", "student"],
    class_weights: ClassWeights = "frequency",
) -> Tensor:
    """The loss of projections `(examples, out)`: a mean over each class, then over the classes that are there.

    With the weights `frequency` that is the mean over all examples.
    """
    dtype = torch.promote_types(student.dtype, torch.float32)
    one, other = (functional.normalize(side.to(dtype), dim=1) for side in (student, teacher))
    peers = labels.unsqueeze(1) == labels
    scores = (one @ other.T / temperature).masked_fill(~peers, -torch.inf)
    losses = -functional.log_softmax(scores, dim=1 if over == "teacher" else 0).diagonal()
    if class_weights == "frequency":
        return losses.mean()
    shares = 1 / peers.sum(1).to(dtype)  # they add up to the number of classes
    return (losses * shares).sum() / shares.sum()


class InformativeTether(PretrainedTether):
    """Compares the model's features with those of its pre-trained weights, which it is lent for a pass."""

    def __init__(self, settings: Informative, run: Run) -> None:
        factors = [name for change in low_rank_changes(run.model) for name in change.factors]
        trainable = run.trainable()
        own = pretrained_names(run.model) + [name for name in factors if name in trainable]
        super().__init__(run, own + list(run.frozen))
        self._settings, self._model = settings, run.model
        self._teacher = LentWeights(run.model, self.parameters)
        heads = attached(run.model, settings.name)
        assert isinstance(heads, nn.ModuleDict)
        self._heads = heads
        self._vectors = SummaryVectors(run.model, settings.feature)
        self._answers: FeatureFile | None = None
        first = next(heads.parameters())
        self._dtype = torch.promote_types(first.dtype, torch.float32)
        if settings.cache and not are_divided(run.model.parameters()):
            path = None if run.folder is None else run.folder / f"teacher-{rank()}.bin"
            self._answers = FeatureFile(path, first.shape[1], self._dtype)

    def watching(self, call: Call) -> Call:
        return self._vectors.watching(call)

    def terms(self, call: Call, batch: Batch, result: Pass, at: Progress) -> list[Term]:
        settings = self._settings
        student, teacher = self._student_features(result), self._teacher_features(call, batch)
        labels = batch["labels"] if settings.conditional else torch.zeros_like(batch["labels"])
        projected = (self._heads["student"](student, labels), self._heads["teacher"](teacher, labels))
        one, other, everyone = (gathered(own) for own in (*projected, labels))
        loss = info_nce(one, other, everyone, settings.temperature, settings.normalise_over, settings.class_weights)
        return [Term("informative", loss, weight_at(settings.weight, at))]

    def _student_features(self, result: Pass) -> Tensor:
        if self._settings.own_pass:
            assert result.again is not None, "a perturbation that cannot be repeated is refused"
            output = result.again()
            assert output.features is not None
            if are_divided(self.parameters):
                # FSDP2 gathers weights for a backward that enters by the model's output, and by that way alone.
                return output.features + 0 * output.logits.sum()
        else:
            output = result.clean[0] if result.perturbed is None else result.perturbed
        assert output.features is not None
        return output.features

    def _teacher_features(self, call: Call, batch: Batch) -> Tensor:
        if self._answers is None:
            return self._taught(call, batch)
        keys = row_keys(batch)
        new = list({key: i for i, key in enumerate(keys) if key not in self._answers}.values())
        if any(anywhere([bool(new)], batch["input_ids"].device)):
            vectors = self._taught(call, _rows(batch, new)).cpu().numpy() if new else None
            # All processes keep all rows: in the next epoch these come to another one.
            for found, theirs in from_all(([keys[i] for i in new], vectors)):
                if theirs is not None:
                    self._answers.add(found, theirs)
        return self._answers.vectors(keys).to(batch["input_ids"].device)

    def _taught(self, call: Call, batch: Batch) -> Tensor:
        with torch.no_grad(), self._teacher.lent(self.pretrained):
            features = call(batch, model=self._model).features
        assert features is not None
        return features.to(self._dtype)

    def leave(self) -> None:
        self._vectors.stop()

    def state_dict(self) -> dict[str, Tensor]:
        # A LoRA checkpoint has nothing of the model but its adapter.
        heads = {f"heads.{name}": whole(parameter).detach() for name, parameter in self._heads.named_parameters()}
        known = {} if self._answers is None else self._answers.state_dict()
        return super().state_dict() | heads | {f"known.{key}": value for key, value in known.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        with torch.no_grad():
            for name, parameter in self._heads.named_parameters():
                part(parameter).copy_(cut(state[f"heads.{name}"], parameter))
        if self._answers is not None and "known.rows" in state:
            self._answers.load_state_dict({key: state[f"known.{key}"] for key in ("rows", "digest")})


def _rows(batch: Batch, rows: list[int]) -> Batch:
    """Some examples of a batch."""
    size, chosen = len(batch["input_ids"]), torch.tensor(rows, device=batch["input_ids"].device)
    return {
        name: value[chosen] if isinstance(value, Tensor) and value.shape[:1] == (size,) else value
        for name, value in batch.items()
    }

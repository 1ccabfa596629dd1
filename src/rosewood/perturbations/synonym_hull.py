"""The worst mixture of each word with its substitutes (ASCC), the adversary of RIFT's family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from rosewood.errors import RunError
from rosewood.models.features import row_keys
from rosewood.models.modes import evaluating
from rosewood.models.sites import Change, Place, Site, real_tokens, site_problems
from rosewood.protocol import Batch, Call, Collate, Cost, Output, Perturbation, Perturber, Run
from rosewood.tensors import draws
from rosewood.tensors.divergences import divergence_problems, forward_kl
from rosewood.tensors.gradients import LossScale, slopes
from rosewood.words.alignment import SUBSTITUTES, Pieces, collate_substitutes, with_substitutes

if TYPE_CHECKING:
    from datasets import Dataset

    from rosewood.recipe import Stage
    from rosewood.words.lexicon import Lexicon

ENTROPY_DIVISOR = 300 * 128  # of RIFT's code, whatever the size of the batch


@dataclass(frozen=True)
class SynonymHull(Perturbation):
    """Every word becomes a convex combination of itself and its substitutes, the one that changes predictions most.

    x'_l = sum_s w_ls e(u_ls), w_l = softmax_s(v_l) over the choices that word l has (Dong et al., ICLR 2021; RIFT,
    NeurIPS 2021). v starts at N(0, 2 / (length * slots)) and takes `steps` steps of Adam, with the model in evaluation
    mode and its weights fixed, up the slope of

        sum over the batch of KL(f(x) || f(x'))  -  entropy_weight * sum of the entropies of w / divisor

    so that x' is close to some text with other words. `entropy_norm="constant"` divides by 38,400 as RIFT's code does,
    "mean" by the number of tokens of the batch, as ASCC's (at RIFT's batch sizes: four times as much).
    `loss="ce"` climbs the task's loss instead, as ASCC does when it tests.

    e is what the embedding module makes of a token in its place (`at="encoder"`, as the papers' code), with a dropout
    of its own for each choice in the pass that trains, or the plain word vector (`at="words"`).

    The substitutes come with the batch (`rosewood.with_substitutes`). For `rosewood train`, `lexicon` names them:
    `counter-fitted`, `wordnet`, `roget` or a JSON file (none: counter-fitted where the data folder has it, as in the
    papers, otherwise roget). RIFT's code looks words up as they are written, so that capitalised ones have no
    substitutes (`exact_case`). In a pair, the words of `field` are replaced (none: the last text). A word has at most
    `slots` choices, itself included. `pieces="single"` has only words and substitutes of one token, as that code,
    "equal" those of equally many, "any" all of them.

    `warm_steps` makes later epochs cheaper: where the last epoch's scores of all texts of a batch are known, v starts
    from these, and takes so many steps (1 to 3) in place of `steps`. They are kept in memory and in checkpoints, as
    float16, for the words that have substitutes. Each of several processes knows only the texts that it has seen.

    Deviations: `length` in the start is the text's own (code: 300 or 80, the padded one), so that it does not matter
    which texts share a batch. All tokens of a word share its weights.
    """

    repeatable = True

    steps: Annotated[int, Field(ge=1)] = 10
    warm_steps: Annotated[int, Field(ge=1)] | None = None
    loss: Literal["kl", "ce"] = "kl"
    learning_rate: Annotated[float, Field(gt=0)] = 1.0
    weight_decay: Annotated[float, Field(ge=0)] = 2e-5
    entropy_weight: Annotated[float, Field(ge=0)] = 15.0
    entropy_norm: Literal["constant", "mean"] = "constant"
    at: Place = "encoder"
    lexicon: str | None = None
    exact_case: bool = False
    field: str | None = None
    slots: Annotated[int, Field(ge=2)] = 10
    pieces: Pieces = "any"

    def columns(self) -> Mapping[str, Collate]:
        return {SUBSTITUTES: collate_substitutes}

    def preparation(self) -> dict[str, Any]:
        settings = self.settings()
        return {name: settings[name] for name in ("lexicon", "exact_case", "field", "slots", "pieces")}

    def prepare(
        self,
        data: Dataset,
        tokenizer: Any,
        fields: Sequence[str],
        max_length: int,
        lexicon: Lexicon | None = None,
        seed: int = 0,
    ) -> Dataset:
        from rosewood.words.constraints import Substituting  # scikit-learn, which describing a recipe does without

        assert lexicon is not None, "a run with this perturbation has a lexicon"
        surface = Substituting(lexicon, self.exact_case).surface
        cut: dict[str, Any] = {"max_length": max_length, "slots": self.slots, "pieces": self.pieces}
        return with_substitutes(data, tokenizer, surface, fields, self.field, **cut)

    def cost(self, stage: Stage) -> Cost:
        target = 1 if self.loss == "kl" else 0
        steps = self.warm_steps or self.steps
        return Cost(forward=steps + target + 1, inputs=steps)

    def memory(self) -> str:
        kept = ", scores of all words" if self.warm_steps else ""
        return f"second graph, embeddings of all substitutes{kept}"

    def explain(self, stage: Stage) -> list[str]:
        what = "KL(f(x) || f(x'))" if self.loss == "kl" else "CE(f(x'), y)"
        over = f"{ENTROPY_DIVISOR:,}" if self.entropy_norm == "constant" else "tokens of the batch"
        place = "embedding output" if self.at == "encoder" else "word vector"
        return [
            f"x'_l = sum_s w_ls e(u_ls), e the {place}, u_l word l and at most {self.slots - 1} substitutes",
            f"w = softmax(v), v by {self.steps} steps of Adam(lr={self.learning_rate:g}), without dropout, up",
            f"  sum {what} - {self.entropy_weight:g} sum H(w_l) / {over}",
        ] + ([f"from the second epoch on {self.warm_steps} steps, from the last epoch's v"] if self.warm_steps else [])

    def problems_with(self, model: nn.Module) -> list[str]:
        problems = divergence_problems(model, "perturbation synonym_hull") if self.loss == "kl" else []
        return problems + site_problems(model, self.at, "perturbation synonym_hull")

    def start(self, run: Run) -> HullClimber:
        return HullClimber(self, run.model, run.loss_scale)


class HullClimber(Perturber):
    """Finds the weights of a batch, and runs the model on the mixtures they make."""

    def __init__(self, settings: SynonymHull, model: nn.Module, loss_scale: LossScale | None = None) -> None:
        self.settings = settings
        self._model = model
        self._loss_scale = loss_scale
        self._place = Site(settings.at, model)
        self._weights: Tensor | None = None
        self._kept = KeptScores()

    def state_dict(self) -> dict[str, Tensor]:
        return self._kept.state_dict() if self.settings.warm_steps else {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._kept.load_state_dict(state)

    def view(self, call: Call, batch: Batch, clean: Output | None) -> Output:
        if SUBSTITUTES not in batch:
            raise RunError(
                f"synonym_hull replaces words, and the batch does not say by which: add {SUBSTITUTES!r} to all "
                "training examples with rosewood.with_substitutes"
            )
        self._weights = self.worst(call, batch)
        return self.again(call, batch)

    def again(self, call: Call, batch: Batch) -> Output:
        assert self._weights is not None, "view comes first"
        mixture = SubstituteMixture(batch, self.settings.slots)
        with self._place.changed(mixture.of(self._embedded(call, batch), self._weights)):
            return call(batch)

    def worst(self, call: Call, batch: Batch) -> Tensor:
        """The weights of the choices of each word, `(batch, tokens, slots)`."""
        mixture = SubstituteMixture(batch, self.settings.slots)
        choices = mixture.choices()
        with evaluating(self._model):
            with torch.no_grad():
                target = call(batch).predictions() if self.settings.loss == "kl" else None
                embedded = self._embedded(call, batch)
            scores, steps = self._start(batch, choices)
            optimizer = torch.optim.Adam(
                [scores], lr=self.settings.learning_rate, weight_decay=self.settings.weight_decay
            )
            for _ in range(steps):
                weights = choice_weights(scores.requires_grad_(), choices)
                with self._place.changed(mixture.of(embedded, weights, fixed=True)):
                    output = call(batch)
                gain = self._gain(output, target) - self._penalty(scores, choices, mixture)
                # Adam goes down; where a slope is not finite, the score stays.
                scores.grad = slopes(gain, [scores], self._loss_scale)[0].nan_to_num_(0, 0, 0).neg_()
                optimizer.step()
        if self.settings.warm_steps:
            self._kept.keep(batch, scores.detach(), choices)
        return choice_weights(scores.detach(), choices)

    def _start(self, batch: Batch, choices: Tensor) -> tuple[Tensor, int]:
        """Where the ascent starts, and how many steps it takes."""
        scores = self._initial(batch, choices)  # drawn in any case, so that the draws of a run do not depend on it
        if self.settings.warm_steps and self._kept.put_into(scores, batch, choices):
            return scores, self.settings.warm_steps
        return scores, self.settings.steps

    def _embedded(self, call: Call, batch: Batch) -> Tensor:
        """The vectors of all layers of substitutes, `(batch, tokens, layers, hidden)`."""
        tokens: Tensor = batch[SUBSTITUTES]["tokens"]
        count, layers, _ = tokens.shape
        # As one batch: every look-up has a gradient as large as the vocabulary, which layer by layer costs seconds.
        repeated = {
            name: value.repeat_interleave(layers, 0)
            for name, value in batch.items()
            if isinstance(value, Tensor) and value.shape[:1] == (count,)
        }
        # The bare model: a wrapper for several processes would wait for the rest of the forward.
        forward = partial(call, {**batch, **repeated, "input_ids": tokens.flatten(0, 1)}, self._model)
        return self._place.reached(forward).unflatten(0, (count, layers)).transpose(1, 2).contiguous()

    def _initial(self, batch: Batch, choices: Tensor) -> Tensor:
        dtype = torch.promote_types(self._place.dtype, torch.float32)
        lengths = real_tokens(batch).sum(1).clamp(min=1).to(dtype)  # an empty text may have no token at all
        scores = draws.normal(batch, *choices.shape[1:], dtype=dtype)
        return scores * (2 / (lengths * self.settings.slots)).sqrt()[:, None, None]

    def _gain(self, output: Output, target: Tensor | None) -> Tensor:
        loss = output.loss if target is None else forward_kl(target, output.predictions())
        return loss * output.prediction_count()

    def _penalty(self, scores: Tensor, choices: Tensor, mixture: SubstituteMixture) -> Tensor:
        entropies = choice_entropies(scores, choices) * mixture.is_word
        divisor = ENTROPY_DIVISOR if self.settings.entropy_norm == "constant" else mixture.is_word.numel()
        return self.settings.entropy_weight / divisor * entropies.sum()


class KeptScores:
    """The scores that the choices of each text ended with, by the text's tokens."""

    def __init__(self) -> None:
        self._scores: dict[bytes, Tensor] = {}

    def keep(self, batch: Batch, scores: Tensor, choices: Tensor) -> None:
        """Remember the scores of the words that have a choice."""
        chosen = scores.to(torch.float16).cpu()
        for row, (key, places) in enumerate(zip(row_keys(batch), _with_choices(choices), strict=True)):
            self._scores[key] = chosen[row, places].clone()

    def put_into(self, scores: Tensor, batch: Batch, choices: Tensor) -> bool:
        """Write what is known of a batch into its scores, if all of it is; says whether it was."""
        keys, places = row_keys(batch), _with_choices(choices)
        known = [self._scores.get(key) for key in keys]
        found = [one for one, at in zip(known, places, strict=True) if one is not None and len(one) == len(at)]
        if len(found) < len(keys):
            return False
        for row, (one, at) in enumerate(zip(found, places, strict=True)):
            scores[row, at.to(scores.device)] = one.to(scores)
        return True

    def state_dict(self) -> dict[str, Tensor]:
        if not self._scores:
            return {}
        keys = torch.frombuffer(bytearray(b"".join(self._scores)), dtype=torch.uint8).view(len(self._scores), -1)
        counts = torch.tensor([len(one) for one in self._scores.values()])
        return {"keys": keys, "counts": counts, "scores": torch.cat(list(self._scores.values()))}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if state:
            keys = (bytes(key) for key in state["keys"].cpu().tolist())
            scores = state["scores"].cpu().split(state["counts"].tolist())
            self._scores = {key: one.clone() for key, one in zip(keys, scores, strict=True)}


def _with_choices(choices: Tensor) -> list[Tensor]:
    """The tokens of each text whose word has more than one choice."""
    return [row.nonzero().flatten() for row in (choices.sum(-1) > 1).cpu()]


def choice_weights(scores: Tensor, choices: Tensor) -> Tensor:
    """Softmax over the choices a word has; the others get exactly 0."""
    return functional.softmax(scores.masked_fill(~choices, -torch.inf), dim=-1)


def choice_entropies(scores: Tensor, choices: Tensor) -> Tensor:
    """The entropy of those weights."""
    logs = functional.log_softmax(scores.masked_fill(~choices, -torch.inf), dim=-1).masked_fill(~choices, 0)
    return -(logs.exp() * logs).sum(-1)  # where there is no choice, 1 times 0


class SubstituteMixture:
    """The substitutes of a batch, and how much of them every place gets; choices beyond `slots` get nothing."""

    def __init__(self, batch: Batch, slots: int) -> None:
        found: Mapping[str, Tensor] = batch[SUBSTITUTES]
        inside = found["slots"] < slots
        self._count = slots
        self._slots, self._shares, self._words = found["slots"] * inside, found["shares"] * inside, found["words"]
        places = torch.arange(self._words.shape[1], device=self._words.device)
        self.is_word = self._words == places  # the first token of a word, or one that belongs to none

    def choices(self) -> Tensor:
        """Which slots each token's word has, `(batch, tokens, slots)`."""
        count, _, length = self._slots.shape
        found = torch.zeros(count, length, self._count, dtype=torch.bool, device=self._slots.device)
        found.scatter_(2, self._slots.transpose(1, 2), True)
        found[..., 0] = True
        return found

    def of(self, embedded: Tensor, weights: Tensor, fixed: bool = False) -> Change:
        """From the vectors of the words to the mixtures; `fixed` lets no gradient through to the vectors."""
        of_word = weights.gather(1, self._words.unsqueeze(2).expand(-1, -1, weights.shape[2]))
        parts = of_word.gather(2, self._slots.transpose(1, 2)) * self._shares.transpose(1, 2).to(weights.dtype)
        parts = parts.to(embedded.dtype)
        own = 1 - parts.sum(2, keepdim=True)

        def change(hidden: Tensor) -> Tensor:
            hidden = hidden.detach() if fixed else hidden
            return own * hidden + (parts.unsqueeze(2) @ embedded).squeeze(2)

        return change

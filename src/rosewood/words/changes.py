"""Texts some of whose words are changed: which, and to what, is left to chance, to the loss, or to its gradient.

Training changes texts without a tokenizer. What words may be changed to is kept as tokens, and a changed text is put
together from the tokens of its words: the tokens of a changed word are replaced by those of its new form, which may be
more or fewer. The result is what the tokenizer makes of the changed text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from datasets import Dataset
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedTokenizerBase

from rosewood.errors import RunError
from rosewood.models.modes import evaluating
from rosewood.models.sites import Site, real_tokens, site_problems
from rosewood.protocol import Batch, Call, Collate, Cost, Output, Perturbation, Perturber, Run
from rosewood.tensors import draws
from rosewood.tensors.gradients import slopes
from rosewood.words.alignment import Aligner, Offsets, Rows, Surface, changed_field, shift_of, with_column
from rosewood.words.text import WORD, Changes, best_picks, first_order_gains, random_picks, spliced

if TYPE_CHECKING:
    from datasets import Dataset

    from rosewood.recipe import Stage
    from rosewood.words.lexicon import Lexicon


KEYS = ("start", "stop", "choices", "lengths", "tokens", "room")


def column_of(perturbation: str) -> str:
    """The column, and the entry of a batch, that a perturbation of words reads."""
    return f"{perturbation}_changes"


def with_changes(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    perturbation: str,
    surface: Surface,
    fields: Sequence[str],
    field: str | None = None,
    *,
    max_length: int = 128,
    choices: int = 8,
    unknown: bool = False,
    pattern: str = WORD,
) -> Dataset:
    """Add to tokenized texts what their words may be changed to.

    Args:
        dataset: Tokenized texts that still have the texts, in `fields`.
        tokenizer: The fast tokenizer that made the tokens.
        perturbation: The name of the perturbation that is to change the words: `substitution` or `typing`.
        surface: From the words of a text to what may replace each of them.
        fields: The text columns, one or two.
        field: Whose words are changed; by default the last.
        max_length: At how many tokens the texts were cut; a change that would make a text longer is not made.
        choices: How many changes a word has at most.
        unknown: Whether a changed word may have tokens that the model does not know.
        pattern: What counts as a word, as a regular expression without groups.

    Returns:
        The data set with one more column.

    Raises:
        DataError: The tokens are not those of the texts, or the tokenizer cannot say which tokens a word has.

    Example:
        >>> from rosewood import Lexicon, Substituting
        >>> surface = Substituting(Lexicon.of({"good": ["fine"]})).surface
        >>> data = Dataset.from_dict({"text": ["a good film"], **tokenizer(["a good film"])})
        >>> set(with_changes(data, tokenizer, "substitution", surface, ["text"]).column_names) - set(data.column_names)
        {'substitution_changes'}
    """
    which = changed_field(dataset, tokenizer, fields, field)
    aligner = Aligner(tokenizer, surface, choices + 1, pattern=pattern, unknown=unknown)

    def changes(text: str, ids: Sequence[int], offsets: Offsets) -> dict[str, Any]:
        return packed(list(aligner.choices(text, ids, offsets)), max_length - len(ids))

    return with_column(dataset, tokenizer, column_of(perturbation), changes, fields, which, max_length)


def packed(found: Sequence[tuple[Sequence[int], Sequence[Sequence[int]]]], room: int) -> dict[str, np.ndarray]:
    """A row of the column: the places of each word and the tokens of its choices; `room` is for more tokens."""
    flat = [choice for _, choices in found for choice in choices]
    columns = {
        "start": [places[0] for places, _ in found],
        "stop": [places[-1] + 1 for places, _ in found],
        "choices": [len(choices) for _, choices in found],
        "lengths": [len(choice) for choice in flat],
        "tokens": [token for choice in flat for token in choice],
        "room": [room],
    }
    return {name: np.array(values, dtype=np.int32) for name, values in columns.items()}


def collate_changes(columns: list[dict[str, np.ndarray]], examples: Rows, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """The changes of a batch, words, choices and tokens of all rows in a row.

    Each word has `row`, `start` and `stop` (places in the batch, row by row), `first` (its first choice) and `choices`
    (how many). Each choice has `word`, `begin` (its first token) and `lengths`. Then `tokens`, and `room` of each row.
    """
    length = ids.shape[1]
    joined = {key: np.concatenate([one[key] for one in columns]).astype(np.int64) for key in KEYS}
    row = np.repeat(np.arange(len(columns)), [len(one["start"]) for one in columns])
    moved = np.array([number * length + shift_of(examples[number], ids[number]) for number in range(len(columns))])
    arrays = {
        "row": row,
        "start": joined["start"] + moved[row],
        "stop": joined["stop"] + moved[row],
        "first": joined["choices"].cumsum() - joined["choices"],
        "choices": joined["choices"],
        "word": np.repeat(np.arange(len(row)), joined["choices"]),
        "begin": joined["lengths"].cumsum() - joined["lengths"],
        "lengths": joined["lengths"],
        "tokens": joined["tokens"],
        "room": joined["room"],
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


PER_TOKEN = ("ForTokenClassification", "ForQuestionAnswering", "LM", "LMHeadModel", "ForConditionalGeneration")
"""How models are called whose labels belong to tokens."""
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class WordChange(Perturbation):
    """Settings of every perturbation that changes words, and how the changes are picked.

    - `random`: each word that can change does so with probability `share`, to any of its choices alike.
    - `worst_of`: `candidates` such texts are drawn, and the one with the highest loss is trained on.
    - `gradient`: the choices that raise the loss most to first order, by one backward to the word vectors, in `share`
      of the words that can change, at least one; a word that no choice makes worse stays.

    Texts are compared without dropout. They are put together from tokens that were prepared before training
    (`rosewood.words.changes`), so they may become longer or shorter, and a step costs what its passes cost. In a pair,
    the words of `field` are changed (none: the last text, as in attacks).
    """

    repeatable = True
    may_be_unknown: ClassVar[bool] = False  # whether a changed word may have tokens that the model does not know
    pattern: ClassVar[str] = WORD  # what counts as a word

    pick: Literal["random", "worst_of", "gradient"] = "random"
    candidates: Annotated[int, Field(ge=2)] = 6
    share: Share = 0.3
    field: str | None = None

    def surface(self, lexicon: Lexicon | None, seed: int, tokenizer: Any) -> Surface:
        """From the words of a text to what may replace each of them."""
        raise NotImplementedError

    def most(self) -> int:
        """How many choices a word has at most."""
        raise NotImplementedError

    def preparation(self) -> dict[str, Any]:
        return {name: value for name, value in self.settings().items() if name not in ("pick", "candidates", "share")}

    def prepare(
        self,
        data: Dataset,
        tokenizer: Any,
        fields: Sequence[str],
        max_length: int,
        lexicon: Lexicon | None = None,
        seed: int = 0,
    ) -> Dataset:
        return with_changes(
            data,
            tokenizer,
            self.name,
            self.surface(lexicon, seed, tokenizer),
            fields,
            self.field,
            max_length=max_length,
            choices=self.most(),
            unknown=self.may_be_unknown,
            pattern=self.pattern,
        )

    def shares(self, batch: Batch) -> Tensor:
        """The share of the words that change, of each text."""
        return torch.full((len(batch["input_ids"]),), self.share, device=batch["input_ids"].device)

    def drawn(self, changes: Changes, share: Tensor, numbers: Tensor) -> Tensor:
        """Changes at random; `numbers` are in [0, 1), `(batch, 2, tokens)`."""
        return random_picks(changes, share, numbers)

    def columns(self) -> Mapping[str, Collate]:
        return {column_of(self.name): collate_changes}

    def cost(self, stage: Stage) -> Cost:
        search = {"random": Cost(), "worst_of": Cost(forward=self.candidates), "gradient": Cost(forward=1, inputs=1)}
        return search[self.pick].plus(Cost(forward=1))

    def memory(self) -> str:
        return "second graph"

    def explain(self, stage: Stage) -> list[str]:
        each = f"each changeable word changed with probability {self.share:g}"
        how = {
            "random": f"x' = x, {each}",
            "worst_of": f"x' = of {self.candidates} texts, {each}, the one with the highest CE(f(x'), y)",
            "gradient": f"x' = x, {self.share:g} of the changeable words changed to what raises CE(f(x'), y) most,\n"
            "  by the gradient of the word vectors",
        }
        return how[self.pick].split("\n")

    def problems_with(self, model: nn.Module) -> list[str]:
        if any(kind.__name__.endswith(PER_TOKEN) for kind in type(model).__mro__):
            return [
                f"perturbation {self.name} changes the number of tokens, so that labels of tokens would not fit any "
                f"more: expected a model that classifies whole texts, got {type(model).__name__}"
            ]
        return site_problems(model, "words", f"perturbation {self.name}") if self.pick == "gradient" else []

    def start(self, run: Run) -> WordChanger:
        return WordChanger(self, run)


class WordChanger(Perturber):
    """Picks changes for a batch, and runs the model on the changed texts."""

    def __init__(self, settings: WordChange, run: Run) -> None:
        self.settings = settings
        self._model, self._loss_scale = run.model, run.loss_scale
        self._column = column_of(settings.name)
        self._words = Site("words", run.model) if settings.pick == "gradient" else None
        padding = getattr(getattr(run.model, "config", None), "pad_token_id", None)
        self._padding = padding if isinstance(padding, int) else 0
        self._last: Batch | None = None

    @property
    def name(self) -> str:
        return self.settings.name

    def view(self, call: Call, batch: Batch, clean: Output | None) -> Output:
        if self._column not in batch:
            raise RunError(
                f"perturbation {self.name} changes words, and the batch does not say to what: add "
                f"{self._column!r} to all training examples with rosewood.with_changes"
            )
        changes: Changes = batch[self._column]
        nothing = not len(changes["row"])
        self._last = batch if nothing else self.changed(batch, self.picks(call, batch, changes))
        return self.again(call, batch)

    def again(self, call: Call, batch: Batch) -> Output:
        assert self._last is not None, "view comes first"
        return call(self._last)

    def picks(self, call: Call, batch: Batch, changes: Changes) -> Tensor:
        """The choice for each word that can change, or -1."""
        share = self.settings.shares(batch)
        if self.settings.pick == "gradient":
            return best_picks(changes, share, self._gains(call, batch, changes))
        tries = 1 if self.settings.pick == "random" else self.settings.candidates
        numbers = draws.uniform(batch, tries, 2, batch["input_ids"].shape[1])
        found = torch.stack([self.settings.drawn(changes, share, numbers[:, i]) for i in range(tries)])
        if tries == 1:
            return found[0]
        worst = self._losses(call, [self.changed(batch, each) for each in found]).argmax(0)
        return found[worst[changes["row"]], torch.arange(found.shape[1], device=found.device)]

    def changed(self, batch: Batch, picks: Tensor) -> Batch:
        """The batch with these changes made to its texts."""
        ids, mask = batch["input_ids"], batch.get("attention_mask")
        texts = spliced(ids, real_tokens(batch), batch[self._column], picks, self._padding)
        beside = {
            name: value.gather(1, texts.place)
            for name, value in batch.items()
            if isinstance(value, Tensor) and value.shape == ids.shape and not value.is_floating_point()
        }
        masks = {} if mask is None else {"attention_mask": texts.real.to(mask.dtype)}
        return {**batch, **beside, **masks, "input_ids": texts.ids}

    @torch.no_grad()
    def _losses(self, call: Call, batches: list[Batch]) -> Tensor:
        """The loss of each example of each batch, `(batches, examples)`, by one forward over all of them."""
        longest = max(batch["input_ids"].shape[1] for batch in batches)
        shape = batches[0]["input_ids"].shape
        together = {
            name: torch.cat([_lengthened(batch, name, longest, self._padding) for batch in batches])
            for name, value in batches[0].items()
            if isinstance(value, Tensor) and value.shape[:1] == shape[:1]
        }
        with evaluating(self._model):
            output = call({**batches[0], **together})
        return example_losses(output, together["labels"]).unflatten(0, (len(batches), shape[0]))

    def _gains(self, call: Call, batch: Batch, changes: Changes) -> Tensor:
        """By how much each choice raises the loss of its text, to first order."""
        assert self._words is not None
        seen: list[Tensor] = []
        delta = torch.zeros((), dtype=self._words.dtype, device=batch["input_ids"].device)

        def leaf(hidden: Tensor) -> Tensor:
            nonlocal delta
            seen.append(hidden.detach())
            delta = torch.zeros_like(hidden, requires_grad=True)
            return seen[0] + delta

        with evaluating(self._model):
            with self._words.changed(leaf):
                output = call(batch)
            slope = slopes(output.loss * output.prediction_count(), [delta], self._loss_scale)[0]
            vectors = self._embedded(call, batch, changes["tokens"])
        return first_order_gains(changes, slope, seen[0], vectors).nan_to_num_(0, 0, 0)

    @torch.no_grad()
    def _embedded(self, call: Call, batch: Batch, tokens: Tensor) -> Tensor:
        """The word vectors of some tokens, `(tokens, width)`, looked up where the model does it."""
        assert self._words is not None
        size = batch["input_ids"].numel()
        times = -(-len(tokens) // size)
        ids = functional.pad(tokens, (0, times * size - len(tokens))).view(-1, batch["input_ids"].shape[1])
        count = len(batch["input_ids"])
        repeated = {
            name: torch.cat([value] * times)
            for name, value in batch.items()
            if isinstance(value, Tensor) and value.shape[:1] == (count,)
        }
        # The bare model: a wrapper for several processes would wait for the rest of the forward.
        forward = partial(call, {**batch, **repeated, "input_ids": ids}, self._model)
        return self._words.reached(forward).flatten(0, 1)[: len(tokens)]


def example_losses(output: Output, labels: Tensor) -> Tensor:
    """What each example would give the loss, `(examples,)`; labels are classes, or yes or no to each of several."""
    if labels.is_floating_point() and output.logits.dim() == 3:  # yes and no, as `Predictions` has it
        right = torch.stack([labels, 1 - labels], dim=-1)
        return -(right * output.logits.log_softmax(-1)).sum(-1).mean(-1)
    if labels.is_floating_point() or output.logits.shape[-1] == 1:
        return (output.logits.flatten() - labels.flatten()).square()
    logits = output.logits.to(torch.promote_types(output.logits.dtype, torch.float32))
    return functional.cross_entropy(logits, labels, reduction="none")


def _lengthened(batch: Batch, name: str, length: int, padding: int) -> Tensor:
    """An entry of a batch with its texts padded on the right to a length, or as it is if it has no tokens."""
    value: Tensor = batch[name]
    if value.shape != batch["input_ids"].shape:
        return value
    return functional.pad(value, (0, length - value.shape[1]), value=padding if name == "input_ids" else 0)

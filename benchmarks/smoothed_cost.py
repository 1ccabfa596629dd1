"""What a smoothed model costs: the processor's time for its answers, beside that of as many plain passes.

python benchmarks/smoothed_cost.py --data-dir FOLDER

MiniLM with a new head reads sentences of SST-2 once with each kind of copies, each sentence as often as there are
copies, and the copies themselves without the defence. One thread, in turns. The first ratio is the cost in passes over
the sentence, divided by the number of copies: copies with deleted words are shorter, those with rare synonyms longer.
The second has what the defence itself adds: it compares with one pass over each distinct copy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from statistics import median

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rosewood import Lexicon, embedded_model, load_task, wrap
from rosewood.data.loading import load_split
from rosewood.defences.runner.copies import generator
from rosewood.defences.runner.wrap import kinds_of
from rosewood.defences.smoothed import Voting
from rosewood.models.defended import Defended
from rosewood.models.scoring import Row, Scorer


def seconds(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row]) -> float:
    """The processor's time for the scores of some texts."""
    began = time.process_time()
    for _ in Scorer(model, tokenizer, max_length=64).batches(rows):
        pass
    return time.process_time() - began


def main() -> None:
    """Print a line for each kind of copies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--copies", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = str(embedded_model("minilm"))
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    task = load_task("sst2")
    rows = [(text,) for text in load_split(task, "test", given.data_dir, given.texts)[task.text[0]][:]]
    repeated = [row for row in rows for _ in range(given.copies)]
    seconds(model, tokenizer, repeated[:200])  # warm up
    lexicon = Lexicon.named(None, given.data_dir)
    for title in kinds_of("smoothed"):
        wrapped = wrap(model, tokenizer, title, copies=given.copies, lexicon=lexicon)
        copies = list(dict.fromkeys(drawn(wrapped, rows))) or repeated
        times = [
            (
                seconds(wrapped, wrapped.tokenizer, rows),
                seconds(model, tokenizer, repeated),
                seconds(model, tokenizer, copies),
            )
            for _ in range(given.rounds)
        ]
        own, plain, bare = (median(column) for column in zip(*times, strict=True))
        print(
            f"{title}: {own:.2f} s, {given.copies} passes over each sentence {plain:.2f} s (ratio {own / plain:.2f}), "
            f"the same copies without the defence {bare:.2f} s (ratio {own / bare:.2f})",
            flush=True,
        )


def drawn(wrapped: Defended, rows: Sequence[Row]) -> list[Row]:
    """The copies that a smoothed model reads; none if it draws none, as with dropout."""
    shield = wrapped.shield
    if not isinstance(shield, Voting):
        return []
    settings = shield.settings
    return [copy for row in rows for copy in shield.noise.copies(row, settings.copies, generator(settings.seed, row))]


if __name__ == "__main__":
    main()

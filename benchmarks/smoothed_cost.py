"""What a smoothed model costs: the processor's time for its answers, beside that of as many plain passes.

python benchmarks/smoothed_cost.py --data-dir FOLDER

MiniLM with a new head reads sentences of SST-2 once with each kind of copies, and each sentence as often as there are
copies without them. One thread; the ratio of the two times is the cost in passes, divided by the number of copies.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rosewood import Lexicon, embedded_model, load_task, wrap
from rosewood.data.loading import load_split
from rosewood.defences.wrapping.wrap import kinds_of
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
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = str(embedded_model("minilm"))
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    task = load_task("sst2")
    rows = [(text,) for text in load_split(task, "test", given.data_dir, given.texts)[task.text[0]][:]]
    repeated = [row for row in rows for _ in range(given.copies)]
    seconds(model, tokenizer, repeated[:200])  # warm up
    for title in kinds_of("smoothed"):
        plain = seconds(model, tokenizer, repeated)
        wrapped = wrap(model, tokenizer, title, copies=given.copies, lexicon=Lexicon.named(None, given.data_dir))
        own = seconds(wrapped, wrapped.tokenizer, rows)
        print(f"{title}: {own:.1f} s, {given.copies} plain passes {plain:.1f} s, ratio {own / plain:.2f}", flush=True)


if __name__ == "__main__":
    main()

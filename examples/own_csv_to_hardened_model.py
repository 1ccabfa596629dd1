"""Your own CSV to a hardened model, with a verdict on test rows that nobody has seen before.

python examples/own_csv_to_hardened_model.py mine.csv --model my-checkpoint --threats words,characters --budget 2h
python examples/own_csv_to_hardened_model.py mine.csv --model my-checkpoint --tiny

The file has the columns text and label. The model is a classifier of yours, or a pre-trained model, which is fine-tuned
plainly first. Recipes race within the budget on held-out rows; the best one is kept if it is better beyond noise.
"""

import argparse

from rosewood import embedded_model, harden
from rosewood.results import Schedule

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("file")
parser.add_argument("--model", help="a folder, a run or a name on the Hub; by default MiniLM")
parser.add_argument("--threats", default="words,characters", help="what may change; or attacks by name")
parser.add_argument("--budget", default="2h", help="time for everything, such as 90m")
parser.add_argument("--output", default="hardened")
parser.add_argument("--tiny", action="store_true", help="two recipes and a few steps")
options = parser.parse_args()

tiny = {
    "candidates": ["vanilla", "label-smoothing"],
    "wrapped": [],
    "schedule": Schedule(
        entrants=["vanilla", "label-smoothing"],
        keep=[2],
        steps={"vanilla": [2], "label-smoothing": [2]},
        clean_rows=8,
        attacked_rows=2,
        mixtures=0,
        test_rows=2,
        seconds=60,
    ),
}
found = harden(
    options.model or embedded_model("minilm"),
    train_file=options.file,
    threats="typos" if options.tiny else options.threats,
    budget=options.budget,
    output=options.output,
    max_length=64,
    **(tiny if options.tiny else {}),
)
print(found.sentence)
for change in found.changes:
    print(f"{change.what}: {change.before:.1%} before, {change.after:.1%} after")

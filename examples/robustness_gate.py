"""Refuse a model in CI that is not robust enough: exit code 0 or 1.

python examples/robustness_gate.py my-model test.csv --require 'clean>=0.85' --require 'attack:typos>=0.4'

It measures the model on clean and noisy text and under an attack, then compares the cautious end of each 95 % interval
with the requirement. docs/gate.md has everything that can be required.
"""

import argparse
import sys

from rosewood import evaluate, gate, open_run

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("checkpoint", help="a run, a folder of save_pretrained, or a name on the Hub")
parser.add_argument("file", help="test data: CSV, TSV, JSON Lines or Parquet with the columns text and label")
parser.add_argument("--require", action="append", default=[], help="such as clean>=0.85 (repeatable)")
parser.add_argument("--attack", default="typos", help="a name of `rosewood list attacks`")
parser.add_argument("--output", default="runs/gate", help="where the figures go")
parser.add_argument("--tiny", action="store_true", help="a few rows")
options = parser.parse_args()

opened = open_run(options.checkpoint)
evaluate(
    opened.model,
    opened.tokenizer,
    options.file,
    size=8 if options.tiny else None,
    max_length=opened.max_length,
    attacks=[options.attack],
    attack_examples=2 if options.tiny else 200,
    output=options.output,
)
checked = gate(options.output, options.require or ["clean>=0.8", f"attack:{options.attack}>=0.3"])
for each in checked.checked:
    print("passed" if each.passed else f"FAILED ({each.reason})", each.requirement)
sys.exit(0 if checked.passed else 1)

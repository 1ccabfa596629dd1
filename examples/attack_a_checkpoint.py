"""Attack a classifier that was trained elsewhere, with texts of your own.

python examples/attack_a_checkpoint.py my-model test.csv --attack typos --examples 200

The checkpoint is a folder of save_pretrained or a name on the Hub. The CSV file has the columns text and label;
labels are names or numbers of the model's outputs.
"""

import argparse

import pandas as pd

from rosewood import attack, open_run

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("checkpoint")
parser.add_argument("file")
parser.add_argument("--attack", default="typos", help="a name of `rosewood list attacks`")
parser.add_argument("--examples", type=int, default=200)
parser.add_argument("--output", help="keep the result in this folder; the same command goes on there after a crash")
parser.add_argument("--tiny", action="store_true", help="four examples and a small budget")
options = parser.parse_args()

opened = open_run(options.checkpoint)
rows = pd.read_csv(options.file).sample(frac=1, random_state=0).head(4 if options.tiny else options.examples)
result = attack(
    opened.model,
    opened.tokenizer,
    rows,
    options.attack,
    folder=options.output,
    max_length=opened.max_length,
    max_queries=20 if options.tiny else None,
)

found = result.summary
low, high = found.robust_interval
print(f"{found.examples} examples: {found.clean_accuracy:.1%} right before the attack")
print(f"{found.robust_accuracy:.1%} right under {options.attack} (95 % interval {low:.1%} to {high:.1%})")
for each in [example for example in result.examples if example.status == "broken"][:3]:
    print(f"\n- {each.texts}\n+ {each.adversarial}")

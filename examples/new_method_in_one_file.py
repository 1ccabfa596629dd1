"""A new training method in one file: gradual unfreezing (Howard and Ruder, 2018) as a selection.

python examples/new_method_in_one_file.py
python examples/new_method_in_one_file.py --tiny

The upper blocks move from the first step, the lower ones join one after the other. The engine does the rest: masked
AdamW, accumulation, precision, checkpoints. Saved as src/rosewood/selections/gradual.py, or in a package of your own,
it is a choice of every recipe: rosewood train --set selection=gradual.
"""

import argparse
import re
from dataclasses import dataclass

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from rosewood import Recipe, RobustTrainer, embedded_model, load_split, load_task, robust_accuracy
from rosewood.models import candidate_names
from rosewood.objectives import CrossEntropy
from rosewood.protocol import Masks, Readings, Run, Selection, Selector
from rosewood.selections import Everything


@dataclass(frozen=True)
class Gradual(Selection):
    masked = "freeze"  # a masked tensor neither moves nor decays

    over: float = 0.5  # the share of the steps after which all blocks move

    def start(self, run: Run) -> Selector:
        return Unfreezing(candidate_names(run.model, biases=True), self.over)


class Unfreezing(Selector):
    def __init__(self, names: list[str], over: float) -> None:
        self.names, self.over = names, over
        self.blocks = torch.tensor([int(re.search(r"\.(\d+)\.", name)[1]) for name in names])

    def masks(self, readings: Readings) -> Masks:
        done = readings.at.step / (self.over * readings.at.total_steps)
        lowest = self.blocks.max() * (1 - done)
        return Masks(self.names, (self.blocks >= lowest).float())


parser = argparse.ArgumentParser()
parser.add_argument("--tiny", action="store_true", help="a few rows and steps")
tiny = parser.parse_args().tiny
task, folder = load_task("reviews"), embedded_model("minilm")
tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=64)
train, test = (load_split(task, split, size=16 if tiny else 2000) for split in ("train", "test"))
data = train.map(lambda batch: tokenizer(batch["text"], truncation=True), batched=True)
arguments = TrainingArguments(
    "runs/gradual", learning_rate=2e-4, num_train_epochs=1, save_strategy="no", report_to="none"
)
for name, selection in {"plain": Everything(), "gradual": Gradual()}.items():
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    recipe = Recipe(name, objective=CrossEntropy(), selection=selection)
    RobustTrainer(model, arguments, recipe=recipe, train_dataset=data, processing_class=tokenizer).train()
    print(name, robust_accuracy(model, tokenizer, test, "typos", examples=4 if tiny else 200))

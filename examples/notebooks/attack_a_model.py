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
# # Attack a model and read what broke it
#
# An attack changes a text step by step until the classifier is wrong. Robust accuracy is the share of texts on which it
# is right and stays right. Put your own checkpoint and texts in the second cell.

# %% tags=["install"]
# %pip install -q "rosewood[demo]"

# %%
import os

import pandas as pd
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from rosewood import RobustTrainer, attack, embedded_model, load_split, load_task

TINY = bool(os.environ.get("ROSEWOOD_TINY"))  # a few rows, to see that everything runs
EXAMPLES = 4 if TINY else 100

# %% [markdown]
# ## A model
#
# Any `AutoModelForSequenceClassification` with its tokenizer will do. Here MiniLM learns from a few thousand reviews.

# %%
task = load_task("reviews")
folder = embedded_model("minilm")
tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=64)
model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(task.labels))
train = load_split(task, "train", size=16 if TINY else 4000)
train = train.map(lambda rows: tokenizer(rows["text"], truncation=True), batched=True)
arguments = TrainingArguments(
    "runs/attacked", num_train_epochs=1, learning_rate=2e-4, save_strategy="no", report_to="none"
)
RobustTrainer(model, arguments, train_dataset=train, processing_class=tokenizer).train()

# %% [markdown]
# ## The attack
#
# `typos` makes slips of the kind that people make. `rosewood list attacks` has the others.

# %%
rows = load_split(task, "test", size=EXAMPLES)
result = attack(model, tokenizer, rows, "typos", max_queries=20 if TINY else None)
found = result.summary
low, high = found.robust_interval
print(f"right before the attack: {found.clean_accuracy:.1%}")
print(f"right under the attack:  {found.robust_accuracy:.1%} (95 % interval {low:.1%} to {high:.1%})")

# %% [markdown]
# ## What broke it

# %%
pd.set_option("display.max_colwidth", 200)
broken = [each for each in result.examples if each.status == "broken"]
pd.DataFrame(
    {
        "before": [each.texts["text"] for each in broken],
        "after": [each.adversarial for each in broken],
        "changed": [", ".join(f"{word.before} -> {word.after}" for word in each.changes) for each in broken],
    }
)

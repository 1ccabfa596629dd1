"""Only trained classifiers in safetensors load, and labels are matched by name, never guessed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import (
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
)

from rosewood.errors import RunError
from rosewood.models.open import load_classifier, open_run
from rosewood.models.scoring import Scorer, label_columns

Make = Callable[..., BertForSequenceClassification]


@pytest.fixture
def checkpoint(make_model: Make, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    make_model(("negative", "positive")).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_loads_what_was_saved(make_model: Make, checkpoint: Path) -> None:
    model, tokenizer = load_classifier(str(checkpoint))
    saved = make_model(("negative", "positive")).state_dict()
    assert all(torch.equal(weight, saved[name]) for name, weight in model.state_dict().items())
    assert not model.training
    assert tokenizer("good film")["input_ids"] == [2, 57, 56, 3]


def test_a_checkpoint_without_a_padding_token_gets_one(checkpoint: Path) -> None:
    settings = GPT2Config(vocab_size=58, n_embd=8, n_layer=1, n_head=2, bos_token_id=2, eos_token_id=29, num_labels=2)
    saved = GPT2ForSequenceClassification(settings).eval()
    saved.save_pretrained(checkpoint)
    config = json.loads((checkpoint / "tokenizer_config.json").read_text())
    del config["pad_token"]
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(config | {"eos_token": "z"}))
    model, tokenizer = load_classifier(str(checkpoint))
    assert tokenizer.pad_token == "z" and model.config.pad_token_id == 29
    batch = next(Scorer(model, tokenizer).batches([("good",), ("a very good film",)]))
    with torch.no_grad():
        longest_first = ("a very good film", "good")
        alone = [saved(**tokenizer(text, return_tensors="pt")).logits[0] for text in longest_first]
    torch.testing.assert_close(torch.tensor(batch.logits), torch.stack(alone))


def test_a_model_without_a_trained_head_is_refused(make_model: Make, checkpoint: Path) -> None:
    BertModel(make_model().config).save_pretrained(checkpoint)
    with pytest.raises(RunError, match=r"no weights for classifier\.bias, classifier\.weight, which would be random"):
        load_classifier(str(checkpoint))


def test_pickled_weights_are_refused(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    torch.save(BertForSequenceClassification, checkpoint / "pytorch_model.bin")
    with pytest.raises(
        RunError, match=r"cannot load a classifier from .*(?s:.*)Expected a folder .* model\.safetensors"
    ):
        load_classifier(str(checkpoint))


def test_damaged_weights(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(RunError, match="cannot load a classifier from"):
        load_classifier(str(checkpoint))


@pytest.mark.parametrize("place", ["nix", "runs/nix", Path("some/nix")])
def test_a_run_that_is_not_there_is_no_matter_of_the_hub(
    place: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=f"^there is no run or checkpoint {place}"):
        open_run(place)


def test_a_name_on_the_hub_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=r"^cannot load a classifier from some/model: "):
        open_run("some/model")


def test_weights_of_another_shape(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"hidden_size": 32}))
    with pytest.raises(RunError, match="cannot load a classifier from"):
        load_classifier(str(checkpoint))


def test_code_in_a_checkpoint_never_runs(checkpoint: Path) -> None:
    (checkpoint / "evil.py").write_text(f"open({str(checkpoint / 'ran')!r}, 'w')")
    config = json.loads((checkpoint / "config.json").read_text()) | {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "evil.C", "AutoModelForSequenceClassification": "evil.M"},
    }
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match="cannot load a classifier from"):
        load_classifier(str(checkpoint))
    assert not (checkpoint / "ran").exists()


def test_missing_tokenizer(make_model: Make, tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path)
    with pytest.raises(RunError, match=r"has no vocabulary\. Copy the files of the tokenizer"):
        load_classifier(str(tmp_path))


def test_no_such_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot load a classifier from"):
        load_classifier(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (("LABEL_0", "LABEL_1"), [0, 1]),
        (("negative", "positive"), [0, 1]),
        (("POSITIVE", "NEGATIVE"), [1, 0]),
    ],
)
def test_outputs_follow_the_labels_of_the_task(make_model: Make, names: tuple[str, ...], columns: list[int]) -> None:
    assert label_columns(make_model(names).config, ["negative", "positive"]) == columns


def test_three_labels_in_another_order(make_model: Make) -> None:
    config = make_model(("contradiction", "entailment", "neutral")).config
    assert label_columns(config, ["entailment", "neutral", "contradiction"]) == [1, 2, 0]


@pytest.mark.parametrize(
    "names", [("bad", "good"), ("negative", "LABEL_1"), ("LABEL_1", "LABEL_0"), ("negative", "negative")]
)
def test_other_names_are_not_guessed(make_model: Make, names: tuple[str, ...]) -> None:
    with pytest.raises(RunError, match=f"the model's labels are {names[0]}, .*the task's are negative, positive"):
        label_columns(make_model(names).config, ["negative", "positive"])


def test_another_number_of_labels(make_model: Make) -> None:
    with pytest.raises(RunError, match=r"the model has 3 outputs, the task 2 labels \(negative, positive\)"):
        label_columns(make_model(("LABEL_0", "LABEL_1", "LABEL_2")).config, ["negative", "positive"])

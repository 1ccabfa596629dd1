"""The step-by-step record: written as JSON lines, rewound on resume, valid after a crash."""

import json
from pathlib import Path

import torch

from rosewood.results.run import History
from rosewood.training.trainer import RobustTrainer
from tiny import TinyData, arguments, tiny_bert, trained


def test_records_wait_until_flushed_and_become_plain_numbers(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = History(path)
    history.record(1, {"terms": {"ce": torch.tensor(0.5)}, "risk": torch.tensor([1.0, float("inf")])})
    assert not path.exists()
    assert history.flush() == [{"step": 1, "terms": {"ce": 0.5}, "risk": [1.0, "inf"]}]
    assert json.loads(path.read_text()) == {"step": 1, "terms": {"ce": 0.5}, "risk": [1.0, "inf"]}
    assert history.flush() == []


def test_rewinding_drops_later_and_broken_lines(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"ste')
    history = History(path)
    history.record(9, {})
    history.rewind(2)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    assert history.flush() == []
    assert [file.name for file in tmp_path.iterdir()] == ["history.jsonl"]


def test_no_file_still_gives_records() -> None:
    history = History()
    history.record(1, {"x": 1.0})
    history.rewind(5)
    history.record(2, {"x": 2.0})
    assert history.flush() == [{"step": 2, "x": 2.0}]


def test_what_a_rose_run_writes(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    trainer = trained("rose-ensemble", tmp_path, max_steps=4, history_file=path, logging_steps=2)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["step"] for record in records] == [1, 2, 3, 4]
    assert set(records[0]["terms"]) == {"ce", "dropout_kl"}
    assert [len(record["first_risk"]) for record in records] == [5] * 4
    assert "second_risk" not in records[0]
    assert records[1]["second_ratio"] == sorted(records[1]["second_ratio"])
    for record, masks in zip(records, trainer.masks, strict=True):
        assert abs(record["kept_share"] - sum(masks.values()) / len(masks)) < 1e-6
    assert [record["learning_rate"] for record in records] == [1e-3, 7.5e-4, 5e-4, 2.5e-4]
    logged = [record for record in trainer.state.log_history if "loss" in record]
    for record, pair in zip(logged, (records[:2], records[2:]), strict=True):
        assert abs(record["loss_ce"] - sum(r["terms"]["ce"] for r in pair) / 2) < 1e-6
        assert abs(record["loss"] - record["loss_ce"]) < 1e-3, "the read-only term is not part of the loss"
        assert abs(record["kept_share"] - sum(r["kept_share"] for r in pair) / 2) < 1e-6


def test_a_given_optimiser_is_recorded_too(tmp_path: Path) -> None:
    model = tiny_bert()
    RobustTrainer(
        model=model,
        args=arguments(tmp_path, max_steps=3),
        train_dataset=TinyData(),
        optimizers=(torch.optim.AdamW(model.parameters(), lr=1e-3), None),
        history_file=tmp_path / "history.jsonl",
    ).train()
    records = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [1, 2, 3]

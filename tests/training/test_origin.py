"""The pre-trained model of a run that starts from a classifier: chosen, named by the checkpoint, or the checkpoint."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from rosewood.data.loading import task_from_files
from rosewood.errors import RunError
from rosewood.models.averaging import average
from rosewood.recipe import load_recipe
from rosewood.results import RunInfo
from rosewood.training.callbacks import Interrupted, SaveAndStop
from rosewood.training.plan import Plan
from rosewood.training.run import resume_run, settled, start_run
from tiny_text import save_tiny_checkpoint, tiny_classifier, tiny_tokenizer

QUERY = "encoder.layer.0.attention.self.query.weight"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A pre-trained model that is not where the classifier is."""
    return saved_encoder(tmp_path / "base")


def saved_encoder(folder: Path, **changes: Any) -> Path:
    torch.manual_seed(5)
    BertModel(BertConfig(**tiny_classifier().config.to_dict() | changes)).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    films = tmp_path / "films.csv"
    films.write_text(
        "text,label\n" + "".join(f"film {chr(97 + i % 26)} {chr(97 + i // 26)},{i % 2}\n" for i in range(40))
    )
    return Plan(
        recipe=load_recipe("wconsol"),
        task=task_from_files(films, films, text_columns=["text"]),
        model=str(save_tiny_checkpoint(tmp_path / "model")),
        max_length=16,
        arguments={"max_steps": 4, "learning_rate": 1e-3, "per_device_train_batch_size": 8},
    )


def changed(plan: Plan, **changes: Any) -> Plan:
    return plan.model_copy(update=changes)


def first_distance(run: Path) -> float:
    return float(json.loads((run / "history.jsonl").read_text().splitlines()[0])["terms"]["l2_sp"])


def distance(model: Path, base: Path) -> float:
    ours, theirs = load_file(model / "model.safetensors"), load_file(base / "model.safetensors")
    return sum(
        float((ours[f"bert.{n}"] - value).double().square().sum()) for n, value in theirs.items() if value.dim() > 1
    )


def note(folder: Path, where: str, base: str) -> None:
    """Have a checkpoint name its base model."""
    if where == "README.md":
        (folder / where).write_text(f"---\nbase_model: {base}\nlicense: mit\n---\n# A model\n")
    else:
        config = json.loads((folder / where).read_text())
        (folder / where).write_text(json.dumps(config | {"_name_or_path": base}))


@pytest.mark.parametrize("where", ["README.md", "config.json"])
def test_the_base_model_that_a_checkpoint_names_is_what_anchors_see(
    plan: Plan, base: Path, tmp_path: Path, where: str
) -> None:
    note(Path(plan.model), where, str(base))
    assert f"Pre-trained model: {base} (named in {where})" in settled(plan).remark
    info = start_run(plan, tmp_path / "run")
    assert info.pretrained == str(base)
    assert first_distance(tmp_path / "run") == pytest.approx(distance(Path(plan.model), base), rel=1e-5)


def test_the_chosen_one_goes_before_the_named_one(plan: Plan, base: Path, tmp_path: Path) -> None:
    note(Path(plan.model), "README.md", str(base))
    itself = changed(plan, pretrained=plan.model)
    start_run(itself, tmp_path / "itself")
    assert first_distance(tmp_path / "itself") == 0
    assert RunInfo.load(tmp_path / "itself" / "run.json").pretrained is None
    other = saved_encoder(tmp_path / "other")
    assert settled(changed(plan, pretrained=str(other))).plan.pretrained == str(other)


def test_a_run_knows_what_its_model_comes_from(plan: Plan, base: Path, tmp_path: Path) -> None:
    first = changed(plan, model=str(base), arguments={"max_steps": 1, "learning_rate": 1e-3})
    assert settled(first).plan.pretrained == str(base)
    assert settled(first).remark == "", "a model without a head is pre-trained itself"
    start_run(first, tmp_path / "first")
    second = changed(plan, model=str(tmp_path / "first" / "model"))
    assert settled(second).plan.pretrained == str(base)
    assert "(named in run.json)" in settled(second).remark
    start_run(second, tmp_path / "second")
    third = changed(plan, model=str(tmp_path / "second" / "model"))
    assert settled(third).plan.pretrained == str(base), "and so do those that come after"


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (None, "the checkpoint itself; it names no base model"),
        ("someone/somewhere", "someone/somewhere is named in README.md, but it is not on this machine"),
        ("wider", r"but embeddings.token_type_embeddings.weight has the shape \(3, 16\) there and \(2, 16\) here"),
        ("[a/b, c/d]", "it names no base model"),
        ("{", "it names no base model"),
    ],
)
def test_without_a_base_model_that_fits_it_is_the_checkpoint(
    plan: Plan, tmp_path: Path, named: str | None, why: str
) -> None:
    if named is not None:
        folder = saved_encoder(tmp_path / "wider", type_vocab_size=3)
        note(Path(plan.model), "README.md", str(folder) if named == "wider" else named)
    found = settled(plan)
    assert found.plan.pretrained == plan.model
    assert re.search(why, found.remark)


def test_a_chosen_model_that_does_not_fit_is_refused(plan: Plan, tmp_path: Path) -> None:
    wider = saved_encoder(tmp_path / "wider", type_vocab_size=3)
    with pytest.raises(
        RunError, match=r"does not fit .*: embeddings.token_type_embeddings.weight has the shape \(3, 16\)"
    ):
        start_run(changed(plan, pretrained=str(wider)), tmp_path / "run")
    with pytest.raises(RunError, match="the model 'nowhere' cannot be loaded"):
        start_run(changed(plan, pretrained="nowhere"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_keeps_its_pretrained_model(
    plan: Plan, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(Path(plan.model), "README.md", str(base))
    start_run(plan, tmp_path / "whole")

    def stop(self: SaveAndStop, args: object, state: object, control: object, **_: object) -> None:
        if state.global_step == 2:  # type: ignore[attr-defined]
            control.should_save = True  # type: ignore[attr-defined]
        if state.global_step == 3:  # type: ignore[attr-defined]
            raise Interrupted

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(SaveAndStop, "on_step_end", stop)
        start_run(plan, tmp_path / "stopped")
    (Path(plan.model) / "README.md").unlink()  # what the checkpoint names now does not matter any more
    resume_run(tmp_path / "stopped")
    files = [tmp_path / name / "model" / "model.safetensors" for name in ("whole", "stopped")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_an_average_mixes_in_the_pretrained_model(plan: Plan, base: Path, tmp_path: Path) -> None:
    start_run(changed(plan, pretrained=str(base)), tmp_path / "run")
    average([tmp_path / "run"], tmp_path / "wise", pretrained_share=0.25)
    trained = load_file(tmp_path / "run" / "model" / "model.safetensors")
    mixed = load_file(tmp_path / "wise" / "model" / "model.safetensors")
    before = load_file(base / "model.safetensors")[QUERY]
    torch.testing.assert_close(mixed[f"bert.{QUERY}"], 0.75 * trained[f"bert.{QUERY}"] + 0.25 * before)
    assert torch.equal(mixed["classifier.weight"], trained["classifier.weight"])

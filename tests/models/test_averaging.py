"""Averages of runs: end points, equal models, weights, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import BertModel

from rosewood.errors import RunError
from rosewood.models.averaging import average
from rosewood.models.open import load_classifier
from rosewood.results import Average, RunInfo
from tiny_text import tiny_classifier, tiny_tokenizer

MakeRun = Callable[..., Path]


def info(pretrained: Path, **changes: Any) -> RunInfo:
    settings: dict[str, Any] = {
        "recipe": "vanilla",
        "task": "films",
        "model": str(pretrained),
        "seed": 3,
        "data_dir": None,
        "fingerprints": {},
        "train_size": None,
        "validation_size": 10,
        "max_length": 16,
        "training_arguments": {},
        "command": "rosewood train",
        "status": "finished",
    }
    return RunInfo(**settings | changes)


@pytest.fixture
def pretrained(tmp_path: Path) -> Path:
    """An encoder without a head, as checkpoints come."""
    folder = tmp_path / "pretrained"
    torch.manual_seed(9)
    BertModel(tiny_classifier().config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def make_run(tmp_path: Path, pretrained: Path) -> MakeRun:
    def make(name: str, number: int, labels: tuple[str, ...] = ("bad", "good"), **changes: Any) -> Path:
        folder = tmp_path / name
        model = tiny_classifier(labels)
        torch.manual_seed(number)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        model.save_pretrained(folder / "model")
        tiny_tokenizer().save_pretrained(folder / "model")
        (folder / "model" / "training_args.bin").write_bytes(b"pickled")
        (folder / "task.yaml").write_text("name: films\n")
        info(pretrained, **changes).save(folder / "run.json")
        return folder

    return make


def tensors(run: Path) -> dict[str, Tensor]:
    return load_file(run / "model" / "model.safetensors")


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_the_end_points_of_wise_ft(make_run: MakeRun, pretrained: Path, tmp_path: Path) -> None:
    run = make_run("run", 1)
    before = tensors(run)
    average([run], tmp_path / "nearly", pretrained_share=1e-300)
    assert same(tensors(tmp_path / "nearly"), before), "alpha = 1 is the fine-tuned model"
    average([run], tmp_path / "start", pretrained_share=1.0)
    found, encoder = tensors(tmp_path / "start"), load_file(pretrained / "model.safetensors")
    for name, tensor in found.items():
        expected = encoder[name.removeprefix("bert.")] if name.startswith("bert.") else before[name]
        assert torch.equal(tensor, expected), name
    assert "classifier.weight" in found


def test_wise_ft_in_between(make_run: MakeRun, pretrained: Path, tmp_path: Path) -> None:
    run = make_run("run", 1)
    average([run], tmp_path / "out", pretrained_share=0.25)
    before, encoder = tensors(run), load_file(pretrained / "model.safetensors")
    for name, tensor in tensors(tmp_path / "out").items():
        start = encoder.get(name.removeprefix("bert.")) if name.startswith("bert.") else None
        expected = before[name] if start is None else 0.75 * before[name].double() + 0.25 * start.double()
        torch.testing.assert_close(tensor, expected.float(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_soup_of_equal_models_is_the_model(count: int, make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("run", 1)
    average([run] * count, tmp_path / "soup")
    assert same(tensors(tmp_path / "soup"), tensors(run))


def test_a_weighted_soup_with_the_pretrained_model(make_run: MakeRun, pretrained: Path, tmp_path: Path) -> None:
    runs = [make_run(name, seed) for seed, name in enumerate("abc")]
    average(runs, tmp_path / "soup", weights=[1, 0, 3], pretrained_share=0.5)
    a, _, c = (tensors(run) for run in runs)
    encoder = load_file(pretrained / "model.safetensors")
    name = "encoder.layer.0.attention.self.query.weight"
    expected = 0.5 * (0.25 * a[f"bert.{name}"].double() + 0.75 * c[f"bert.{name}"].double()) + 0.5 * encoder[name]
    found = tensors(tmp_path / "soup")
    torch.testing.assert_close(found[f"bert.{name}"].double(), expected, rtol=1e-6, atol=1e-7)
    head = 0.25 * a["classifier.bias"] + 0.75 * c["classifier.bias"]
    torch.testing.assert_close(found["classifier.bias"], head)


def test_the_result_is_a_run_that_says_what_it_is_made_of(make_run: MakeRun, pretrained: Path, tmp_path: Path) -> None:
    runs = [make_run("a", 1), make_run("b", 2, recipe="rose-first", seed=4)]
    output = tmp_path / "deep" / "soup"
    returned = average(runs, output, pretrained_share=0.5)
    assert {path.name for path in output.iterdir()} == {"model", "run.json", "task.yaml", "average.json"}
    assert not (output / "model" / "training_args.bin").exists(), "nobody trained this model"
    assert [path.name for path in output.parent.iterdir()] == ["soup"]
    assert RunInfo.load(output / "run.json") == returned
    assert (returned.recipe, returned.status, returned.max_length) == ("average", "finished", 16)
    said = Average.load(output / "average.json")
    assert [(part.run, part.recipe, part.seed, part.weight) for part in said.runs] == [
        (str(runs[0]), "vanilla", 3, 0.5),
        (str(runs[1]), "rose-first", 4, 0.5),
    ]
    assert (said.pretrained, said.pretrained_share) == (str(pretrained), 0.5)
    model, tokenizer = load_classifier(str(output / "model"))
    assert model.config.id2label == {0: "bad", 1: "good"}
    assert "film" in tokenizer.get_vocab()
    average([output, runs[0]], tmp_path / "again")


def test_shards_and_integers(make_run: MakeRun, tmp_path: Path) -> None:
    run, other = make_run("a", 1), make_run("b", 2)
    for folder in (run, other):
        whole = tensors(folder) | {"counter": torch.tensor([3])}
        (folder / "model" / "model.safetensors").unlink()
        names = sorted(whole)
        for i, part in enumerate((names[:10], names[10:]), 1):
            save_file({name: whole[name] for name in part}, folder / "model" / f"model-0000{i}-of-00002.safetensors")
        (folder / "model" / "model.safetensors.index.json").write_text("{}")
    average([run, other], tmp_path / "soup")
    found = tensors(tmp_path / "soup")
    assert found["counter"].tolist() == [3]
    assert not (tmp_path / "soup" / "model" / "model.safetensors.index.json").exists()


def test_tensors_are_read_one_by_one(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At no time are there more loaded tensors than runs."""
    import weakref

    from rosewood.models import averaging

    alive: list[weakref.ref[Tensor]] = []
    most = 0
    read = averaging.Weights.__getitem__

    def watched(self: averaging.Weights, name: str) -> Tensor:
        nonlocal most
        tensor = read(self, name)
        alive.append(weakref.ref(tensor))
        most = max(most, sum(ref() is not None for ref in alive))
        return tensor

    monkeypatch.setattr(averaging.Weights, "__getitem__", watched)
    average([make_run(name, seed) for seed, name in enumerate("abcd")], tmp_path / "soup")
    assert most == 4


def test_an_existing_folder_is_never_touched(make_run: MakeRun, tmp_path: Path) -> None:
    output = tmp_path / "mine"
    output.mkdir()
    with pytest.raises(RunError, match="mine exists already: choose another --output"):
        average([make_run("a", 1), make_run("b", 2)], output)
    assert not list(output.iterdir())


def test_models_that_differ_are_refused(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("a", 1)
    with pytest.raises(RunError, match=r"b cannot be averaged with .*a: it has other labels \(\['no', 'yes'\], not"):
        average([run, make_run("b", 2, labels=("no", "yes"))], tmp_path / "soup")
    with pytest.raises(RunError, match=r"has weights of other shapes \(classifier\.bias: \(3,\), not \(2,\)\)"):
        average([run, make_run("c", 2, labels=("bad", "good", "so"))], tmp_path / "soup")
    with pytest.raises(RunError, match=r"started from another pre-trained model \(minilm-like, not "):
        average([run, make_run("d", 2, model="minilm-like")], tmp_path / "soup")
    other = make_run("e", 2)
    config = json.loads((other / "model" / "config.json").read_text())
    config["architectures"] = ["RobertaForSequenceClassification"]
    (other / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match=r"is another architecture \(\['Roberta"):
        average([run, other], tmp_path / "soup")
    assert not (tmp_path / "soup").exists()


def test_what_cannot_be_averaged_says_why(make_run: MakeRun, pretrained: Path, tmp_path: Path) -> None:
    run, output = make_run("a", 1), tmp_path / "soup"
    with pytest.raises(RunError, match="there is nothing to average"):
        average([run], output)
    with pytest.raises(RunError, match="one weight for each of the 2 runs, got 1"):
        average([run, run], output, weights=[1])
    with pytest.raises(RunError, match="must not be negative, and not all 0: got 0, 0"):
        average([run, run], output, weights=[0, 0])
    with pytest.raises(RunError, match=r"not finished \(interrupted\)"):
        average([run, make_run("b", 2, status="interrupted")], output)
    with pytest.raises(RunError, match=r"expected a finished run \(with run\.json\) or a checkpoint"):
        average([run, tmp_path / "nowhere"], output)
    damaged = make_run("damaged", 2)
    (damaged / "model" / "model.safetensors").write_bytes(b"not a model")
    with pytest.raises(RunError, match="cannot be read"):
        average([run, damaged], output)
    (damaged / "model" / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"has no weights: expected model\.safetensors"):
        average([run, damaged], output)
    shutil.rmtree(pretrained)
    with pytest.raises(RunError, match=r"the pre-trained model .* cannot be loaded"):
        average([run], output, pretrained_share=0.5)
    assert not output.exists()


def test_another_pretrained_model_in_the_same_place_is_refused(
    make_run: MakeRun, pretrained: Path, tmp_path: Path
) -> None:
    run = make_run("a", 1)
    config = tiny_classifier().config
    config.intermediate_size = 8
    BertModel(config).save_pretrained(pretrained)
    with pytest.raises(RunError, match=r"its pre-trained model .* has another shape there"):
        average([run], tmp_path / "out", pretrained_share=0.5)


def test_a_checkpoint_of_another_library(make_run: MakeRun, pretrained: Path, tmp_path: Path) -> None:
    """It is averaged as the run that holds the same weights, once its pre-trained model is named."""
    run = make_run("a", 1)
    checkpoint, output = shutil.copytree(run / "model", tmp_path / "elsewhere"), tmp_path / "wise"
    with pytest.raises(
        RunError, match=r"elsewhere was fine-tuned from is not known \(it names no base model\): name it"
    ):
        average([checkpoint], output, pretrained_share=0.25)
    assert average([checkpoint], output, pretrained_share=0.25, pretrained=str(pretrained)) is None
    average([run], tmp_path / "expected", pretrained_share=0.25)
    assert same(load_file(output / "model.safetensors"), tensors(tmp_path / "expected"))
    (part,) = Average.load(output / "average.json").runs
    assert (part.recipe, part.seed) == ("checkpoint", None)
    assert load_classifier(str(output))[0].config.id2label == {0: "bad", 1: "good"}

    other = make_run("b", 2)
    with pytest.raises(RunError, match=r"from another pre-trained model .*not known, name it with --pretrained"):
        average([other, checkpoint], tmp_path / "soup")
    average([other, checkpoint], tmp_path / "soup", pretrained=str(pretrained))
    average([other, run], tmp_path / "same")
    assert same(tensors(tmp_path / "soup"), tensors(tmp_path / "same"))


def test_the_base_model_that_a_checkpoint_names_is_found_as_in_training(
    make_run: MakeRun, pretrained: Path, tmp_path: Path
) -> None:
    run = make_run("a", 1)
    average([run], tmp_path / "expected", pretrained_share=0.5)
    card = shutil.copytree(run / "model", tmp_path / "card")
    (card / "README.md").write_text(f"---\nbase_model: {pretrained}\n---\n")
    for checkpoint in (run / "model", card):  # one is part of a run, which says it
        output = tmp_path / f"wise-{checkpoint.name}"
        average([checkpoint], output, pretrained_share=0.5)
        assert same(load_file(output / "model.safetensors"), tensors(tmp_path / "expected"))
        assert Average.load(output / "average.json").pretrained == str(pretrained)
    (card / "README.md").write_text("---\nbase_model: someone/somewhere\n---\n")
    with pytest.raises(RunError, match=r"someone/somewhere is named in README\.md, but it is not on this machine"):
        average([card], tmp_path / "out", pretrained_share=0.5)

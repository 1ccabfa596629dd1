"""The page built by gradio, and asked through gradio's own client."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rosewood.errors import RunError
from rosewood.lab.playground.app import OWN_ANSWER, Playground, import_gradio, start
from tiny_playground import telling_sentence, tiny_playground

pytest.importorskip("gradio", reason="gradio is not installed")


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Playground:
    return tiny_playground(tmp_path_factory.mktemp("playground"))


@pytest.fixture(scope="module")
def page(playground: Playground) -> Iterator[Any]:
    served = start(playground, "127.0.0.1", None)
    yield served
    served.close(verbose=False)


@pytest.fixture(scope="module")
def client(page: Any) -> Iterator[Any]:
    from gradio_client import Client

    client = Client(page.local_url, verbose=False, analytics_enabled=False)
    yield client
    client.close()


def test_gradio_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(RunError, match=r"^the playground needs gradio, .*: pip install 'rosewood\[playground\]'$"):
        import_gradio()


def test_the_page_is_for_this_machine_and_nobody_is_told(page: Any) -> None:
    from gradio.analytics import analytics_enabled

    assert page.local_url.startswith("http://127.0.0.1:")
    assert not page.share and page.share_url is None
    assert not page.analytics_enabled and not analytics_enabled()


def test_the_client_gets_what_the_functions_say(client: Any, playground: Playground) -> None:
    text = telling_sentence(playground)
    assert client.predict(text, api_name="/answer") == playground.answer(text)
    lexicon = playground.choices.lexicon
    expected = playground.attack([text], "text", "pwws", lexicon, OWN_ANSWER, 300, lambda share, words: None)
    assert "run telling" in expected
    assert client.predict("text", "pwws", lexicon, OWN_ANSWER, 300, text, api_name="/attack") == expected


def test_a_pair_has_two_fields_and_a_choice_of_the_one_to_change(tmp_path: Path) -> None:
    from gradio_client import Client

    pairs = tiny_playground(tmp_path, fields=("premise", "hypothesis"))
    page: Any = start(pairs, "127.0.0.1", None)
    client = Client(page.local_url, verbose=False, analytics_enabled=False)
    try:
        assert client.predict("good film", "a film", api_name="/answer") == pairs.answer("good film", "a film")
        inputs = ("premise", "typos", pairs.choices.lexicon, "positive", 50)
        expected = pairs.attack(["good film", "a film"], *inputs, lambda share, words: None)
        assert client.predict(*inputs, "good film", "a film", api_name="/attack") == expected
        assert "Against <bdi>plain</bdi>" in expected
    finally:
        client.close()
        page.close(verbose=False)


def test_what_the_page_does_not_offer_is_refused(client: Any, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"good": ["secret"]}')
    with pytest.raises(Exception, match=r"secret\.json"):
        client.predict("text", "pwws", str(tmp_path / "secret.json"), OWN_ANSWER, 300, "good film", api_name="/attack")


def test_a_port_that_is_taken_is_told(page: Any, playground: Playground) -> None:
    with pytest.raises(RunError, match=rf"^cannot listen on 127\.0\.0\.1, port {page.server_port}: .*another --port"):
        start(playground, "127.0.0.1", page.server_port)


def test_nothing_can_be_uploaded(page: Any) -> None:
    import httpx

    files = {"files": ("big.txt", b"x" * 10_000)}
    answer = httpx.post(f"{page.local_url}gradio_api/upload", files=files, trust_env=False)
    assert answer.status_code == 413

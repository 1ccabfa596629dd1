"""The page itself, and the server that shows it: all of gradio is in this file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rosewood.data.tasks import Task
from rosewood.errors import RosewoodError, RunError
from rosewood.playground.arms import Arms
from rosewood.playground.duel import duel
from rosewood.playground.page import answers_html, attack_html, notice_html
from rosewood.playground.sentence import ask, typed
from rosewood.playground.served import ServedRun

if TYPE_CHECKING:
    import gradio as gr

CSS = Path(__file__).parent / "templates" / "playground.css"
OWN_ANSWER = "what each run says itself"
QUERIES = 500
MOST_QUERIES = 5000
WAITING = 20
"""People that may wait for their answer; further ones are turned away."""


@dataclass(frozen=True)
class Playground:
    """What the page asks for, as functions of what its fields hold."""

    task: Task
    runs: Sequence[ServedRun]
    arms: Arms
    samples: Sequence[list[str]] = ()

    def answer(self, *texts: str) -> str:
        """What every run says of the texts."""
        try:
            return answers_html(ask(self.runs, typed(self.task, texts)), self.task.labels)
        except RosewoodError as error:
            return notice_html(str(error))

    def attack(
        self, texts: Sequence[str], field: str, attack: str, lexicon: str, label: str, queries: float, progress: Any
    ) -> str:
        """The words that break the runs; `progress` takes a share and a sentence."""
        budget = max(1, min(int(queries), MOST_QUERIES))
        order = [run.name for run in self.runs]

        def tell(run: str, scored: int) -> None:
            share = (order.index(run) + min(1.0, scored / budget)) / len(order)
            progress(share, f"{run}: {scored} of at most {budget} queries")

        try:
            found = typed(self.task, texts)
            progress(0, f"{attack}: getting ready")
            chosen, resources = self.arms.take(attack, lexicon)
            right = self.task.labels.index(label) if label in self.task.labels else None
            rounds = duel(self.runs, found, field, chosen, resources, right, budget, tell)
            return attack_html(rounds, self.task.labels, field, budget)
        except RosewoodError as error:
            return notice_html(str(error))


def import_gradio() -> Any:
    """gradio without its reports to its makers; an error that says how to install it."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # it reads this once
    try:
        import gradio
    except ImportError as error:
        raise RunError(
            f"the playground needs gradio, which cannot be imported ({error}): pip install 'rosewood[playground]'"
        ) from None
    return gradio


def build(playground: Playground) -> gr.Blocks:
    """The page for these runs."""
    gr = import_gradio()
    task, arms = playground.task, playground.arms
    turn = {"concurrency_id": "models", "concurrency_limit": 1}  # the models serve one person at a time
    tracker = gr.Progress()  # as a default, gradio puts the real one in its place
    names = ", ".join(run.name for run in playground.runs)
    with gr.Blocks(title=f"Rosewood: {task.name}", analytics_enabled=False) as page:
        gr.Markdown(f"# Rosewood playground\n{_plain(task.title)}. Runs: {_plain(names)}.", sanitize_html=True)
        texts = [
            gr.Textbox(label=field.capitalize(), lines=2, max_lines=8, elem_id=f"text-{field}") for field in task.text
        ]
        show = gr.Button("Show what the runs say", variant="primary", elem_id="show")
        answers = gr.HTML(elem_id="answers")
        with gr.Row():
            kind = gr.Radio(arms.attacks, value=arms.attacks[0], label="Attack")
            lexicon = gr.Radio(arms.lexicons, value=arms.lexicon, label="Lexicon that replaced words come from")
        with gr.Row():
            label = gr.Dropdown([OWN_ANSWER, *task.labels], value=OWN_ANSWER, label="The right answer")
            field = gr.Radio(task.text, value=task.text[-1], label="Text to change", visible=len(task.text) > 1)
            queries = gr.Slider(10, MOST_QUERIES, QUERIES, step=10, label="Queries, at most, for each run")
        fight = gr.Button("Attack", variant="primary", elem_id="attack")
        attacked = gr.HTML(elem_id="attacked")
        if playground.samples:
            gr.Examples(list(playground.samples), [*texts, label], label="Examples, with their labels")

        def attack(
            field: str, attack: str, lexicon: str, label: str, queries: float, progress: Any = tracker, *texts: str
        ) -> str:
            return playground.attack(texts, field, attack, lexicon, label, queries, progress)

        asked = [show.click, *(text.submit for text in texts)]
        gr.on(asked, playground.answer, texts, answers, api_name="answer", **turn)
        fight.click(playground.answer, texts, answers, api_visibility="private", **turn).then(
            attack, [field, kind, lexicon, label, queries, *texts], attacked, api_name="attack", **turn
        )
    return page


def start(playground: Playground, host: str, port: int | None) -> gr.Blocks:
    """Serve the page from threads of this process, on this machine only unless the host says otherwise."""
    gr = import_gradio()
    page = build(playground).queue(max_size=WAITING, api_open=False)
    theme = gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    try:
        page.launch(
            share=False,
            server_name=host,
            server_port=port,
            prevent_thread_lock=True,
            quiet=True,
            footer_links=[],
            run_history=False,
            enable_monitoring=False,
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
            max_file_size=1,  # nothing is uploaded here
            theme=theme,
            css_paths=CSS,
        )
    except OSError as error:
        raise RunError(
            f"cannot listen on {host}, port {port or 'from 7860 up'}: {error}. Choose another --port"
        ) from None
    return page


def _plain(words: str) -> str:
    """Words that Markdown leaves as they are."""
    from html import escape

    return "".join(f"\\{sign}" if sign in "\\`*_{}[]()#+-.!|~$" else sign for sign in escape(words, quote=False))

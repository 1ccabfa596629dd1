"""The playground's page and server. All of gradio is in this file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader

from rosewood.data.tasks import Task
from rosewood.errors import RosewoodError, RunError
from rosewood.lab.playground.served_runs import Answer, AttackChoices, AttackedRun, ServedRun, ask, attack_each, typed
from rosewood.report.figures.style import colour
from rosewood.results import AttackedExample

if TYPE_CHECKING:
    import gradio as gr


CSS = Path(__file__).parent / "templates" / "playground.css"
OWN_ANSWER = "what each run says itself"
USUAL = "pwws"
"""The attack that is chosen at first: it breaks more sentences than the other quick ones."""
WAITING = 20
"""People that may wait for their answer; further ones are turned away."""


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
    task, choices = playground.task, playground.choices
    turn = {"concurrency_id": "models", "concurrency_limit": 1}  # the models serve one person at a time
    tracker = gr.Progress()  # as a default, gradio puts the real one in its place
    with gr.Blocks(title=f"Rosewood: {task.name}", analytics_enabled=False) as page:
        gr.HTML(header_html(task.title, [run.name for run in playground.runs]))
        texts = [gr.Textbox(label=field.capitalize(), lines=2, elem_id=f"text-{field}") for field in task.text]
        label = gr.Dropdown(
            [OWN_ANSWER, *task.labels], value=OWN_ANSWER, label="The right answer", min_width=280, render=False
        )
        if playground.samples:
            gr.Examples(list(playground.samples), [*texts, label], label="Examples, with their labels")
        show = gr.Button("Show what the runs say", variant="primary", elem_id="show")
        answers = gr.HTML(elem_id="answers")
        with gr.Row():
            kind = gr.Radio(choices.attacks, value=USUAL, label="Attack", min_width=280)
            lexicon = gr.Radio(
                choices.lexicons, value=choices.lexicon, label="Lexicon to replace words from", min_width=280
            )
        with gr.Row():
            label.render()
            field = gr.Radio(
                task.text, value=task.text[-1], label="Text to change", min_width=280, visible=len(task.text) > 1
            )
            queries = gr.Number(
                QUERIES, precision=0, minimum=1, maximum=MOST_QUERIES, label="Queries a run, at most", min_width=280
            )
        fight = gr.Button("Attack", variant="primary", elem_id="attack")
        attacked = gr.HTML(elem_id="attacked")

        def attack(
            field: str, attack: str, lexicon: str, label: str, queries: int | None, progress: Any = tracker, *texts: str
        ) -> str:
            return playground.attack(texts, field, attack, lexicon, label, queries, progress)

        asked = [show.click, *(text.submit for text in texts)]
        gr.on(asked, playground.answer, texts, answers, api_name="answer", **turn).then(
            lambda: "",
            None,
            attacked,
            api_visibility="private",  # of another sentence, maybe
        )
        fight.click(playground.answer, texts, answers, api_visibility="private", **turn).then(
            attack, [field, kind, lexicon, label, queries, *texts], attacked, api_name="attack", **turn
        )
    return page


def start(playground: Playground, host: str, port: int | None) -> gr.Blocks:
    """Serve the page from threads of this process, on this machine only unless the host says otherwise."""
    gr = import_gradio()
    page = build(playground).queue(max_size=WAITING, api_open=False)
    # Fonts of the reader's own, so that none is fetched; buttons dark enough for white letters.
    theme = gr.themes.Base(
        primary_hue="rose", font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
    )
    theme.set(button_primary_background_fill="*primary_700", button_primary_background_fill_dark="*primary_700")
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


QUERIES = 500
MOST_QUERIES = 5000
PATIENCE = 10
"""Seconds to wait for the batch that is under way."""


@dataclass(frozen=True)
class Playground:
    """The runs, the attacks and the examples of a page; an error becomes a notice on it."""

    task: Task
    runs: Sequence[ServedRun]
    choices: AttackChoices
    samples: Sequence[list[str]] = ()
    ended: Event = field(default_factory=Event)
    _turn: Lock = field(default_factory=Lock)  # the models serve one person at a time

    def answer(self, *texts: str) -> str:
        """What every run says of the texts."""
        try:
            with self._turn:
                return answers_html(ask(self.runs, typed(self.task, texts)), self.task.labels)
        except RosewoodError as error:
            return notice_html(str(error))

    def attack(
        self,
        texts: Sequence[str],
        field: str,
        attack: str,
        lexicon: str,
        label: str,
        queries: int | None,
        progress: Callable[[float, str], object],
    ) -> str:
        """The words that break the runs; `progress` takes a share and a sentence."""
        budget = max(1, min(int(queries or QUERIES), MOST_QUERIES))  # an emptied field is none
        order = [run.name for run in self.runs]

        def tell(run: str, scored: int) -> None:
            if self.ended.is_set():
                raise RunError("The playground has been stopped.")
            share = (order.index(run) + min(1.0, scored / budget)) / len(order)
            progress(share, f"{run}: {scored} of at most {budget} queries")

        try:
            found = typed(self.task, texts)
            progress(0.0, f"{attack}: getting ready")
            chosen, resources = self.choices.take(attack, lexicon)
            right = self.task.labels.index(label) if label in self.task.labels else None
            with self._turn:
                rounds = attack_each(self.runs, found, field, chosen, resources, right, budget, tell)
            return attack_html(rounds, self.task.labels, field, budget)
        except RosewoodError as error:
            return notice_html(str(error))

    def stop(self) -> None:
        """End an attack that is under way and let none begin: torch at work in a thread would crash the exit."""
        self.ended.set()
        self._turn.acquire(timeout=PATIENCE)  # and kept


CLASSES = 8
"""Classes that are shown of a task with many."""
CONTEXT = 300
"""Characters that are shown of each end of a long part without change."""


def header_html(title: str, runs: Sequence[str]) -> str:
    """What the page is about."""
    return _render("header.html", title=title, runs=runs)


def answers_html(answers: Sequence[Answer], labels: Sequence[str]) -> str:
    """Every run's class probabilities, side by side."""
    highest = [max(answer.probabilities[label] for answer in answers) for label in range(len(labels))]
    shown = sorted(sorted(range(len(labels)), key=lambda label: -highest[label])[:CLASSES])
    agreed = len({answer.prediction for answer in answers}) == 1
    return _render("answers.html", answers=answers, labels=labels, shown=shown, agreed=agreed)


def attack_html(rounds: Sequence[AttackedRun], labels: Sequence[str], field: str, max_queries: int) -> str:
    """What the attack on a field found against each run, with the changed words marked."""
    # Two runs that the same words break share one headline.
    headlines = {tuple(_changes(each)): each for each in rounds if each.example.status == "broken"}
    return _render(
        "attack.html",
        rounds=rounds,
        labels=labels,
        headlines=headlines,
        max_queries=max_queries,
        pieces=partial(_pieces, field=field),
    )


def notice_html(words: str) -> str:
    """Something that the person should know or do."""
    return _render("notice.html", words=words)


def _changes(found: AttackedRun) -> list[tuple[str, str]]:
    return [(change.before, change.after) for change in found.example.changes]


def _pieces(example: AttackedExample, field: str) -> list[tuple[str, str]]:
    """The text in pieces before and after; of a long part without change only the ends."""
    text = example.texts[field]
    return [(_short(a), _short(b)) if a == b else (a, b) for a, b in example.aligned or [(text, text)]]


def _short(text: str) -> str:
    return text if len(text) <= 2 * CONTEXT else f"{text[:CONTEXT]} … {text[-CONTEXT:]}"


@cache
def _templates() -> Environment:
    found = Environment(loader=PackageLoader("rosewood.lab.playground"), autoescape=True, trim_blocks=True)
    found.filters["percent"] = lambda share: f"{100 * share:.1f} %"
    found.globals["colour"] = colour
    return found


def _render(name: str, **what: Any) -> str:
    return _templates().get_template(name).render(**what)

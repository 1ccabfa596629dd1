"""The page itself, and the server that shows it: all of gradio is in this file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rosewood.errors import RunError
from rosewood.playground.page import header_html
from rosewood.playground.requests import MOST_QUERIES, QUERIES, Playground

if TYPE_CHECKING:
    import gradio as gr

CSS = Path(__file__).parent / "templates" / "playground.css"
OWN_ANSWER = "what each run says itself"
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
    task, arms = playground.task, playground.arms
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
            kind = gr.Radio(arms.attacks, value=arms.attacks[0], label="Attack", min_width=280)
            lexicon = gr.Radio(arms.lexicons, value=arms.lexicon, label="Lexicon to replace words from", min_width=280)
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

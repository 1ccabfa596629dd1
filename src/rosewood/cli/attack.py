"""rosewood attack: how right a model stays when somebody looks for the words that make it wrong."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from rosewood.cli import app
from rosewood.cli.evaluate import (
    check_run,
    common_length,
    in_words_of,
    name_outputs,
    names_in,
    own_file,
    results_folder,
    task_of,
)
from rosewood.cli.options import options_of_settings
from rosewood.cli.train import file_name
from rosewood.config.settings import DATA, SEARCH, AttackSettings
from rosewood.errors import DataError, RunError, closest

if TYPE_CHECKING:
    from rosewood.attacks.runner.attack import Attack
    from rosewood.attacks.runner.example import Encoder, Resources
    from rosewood.attacks.runner.execute import Engine
    from rosewood.attacks.runner.job import Campaign
    from rosewood.attacks.runner.protocols import Protocol, Resolved
    from rosewood.data.tasks import Task
    from rosewood.results import AttackResult, TestFile

EXAMPLES = """
[bold]Examples[/]

  rosewood attack runs/vanilla runs/rose --attack pwws

  rosewood attack runs/rose --attack genetic --set population=20 --set generations=10 --examples 200 --jobs 4

  rosewood attack runs/vanilla runs/rose --protocol textdefender --examples 200

  rosewood attack ./my-checkpoint --task sst2 --attack typos --max-seconds 60

  rosewood attack org/model-on-the-hub --test-file mine.csv --labels bad,good --attack pwws

  rosewood attack runs/rose --attack textfooler --constraint words_share=0.2 --constraint similarity=0.8,to=last

  torchrun --nproc-per-node 4 -m rosewood attack runs/rose --attack textfooler

  rosewood attack runs/rose --attack worst --engine ray --ray-address auto

  rosewood attack runs/vanilla runs/rose --attack pwws --transfer

  rosewood attack runs/rose --replay runs/vanilla/attacks/pwws-test-0f3c9a1e
"""


EXAMPLES_USUALLY = 1000


@dataclass(frozen=True)
class Orders:
    """What was asked for, whichever the run."""

    given: dict[str, Any]
    protocol: Protocol | None
    task: str | None
    split: str | None
    own: TestFile | None
    labels: list[str] | None
    data_dir: Path | None
    causal_lm: str | None
    length: int | None = None
    """Tokens per text where neither the user nor the protocol says it; None: the run's own."""

    def on(self, task: str | None) -> Resolved:
        """All settings on a task."""
        from rosewood.attacks.runner.protocols import Resolved

        return Resolved(self.given, ()) if self.protocol is None else self.protocol.resolve(self.given, task)


@app.command(epilog=EXAMPLES)
@options_of_settings()
def attack(
    runs: list[str] = typer.Argument(help="Run directories, checkpoint folders or Hub names."),
    attack: str | None = typer.Option(
        None,
        help="One of `rosewood list attacks`, or textattack:RECIPE.",
        show_default="the protocol's",
        rich_help_panel=SEARCH,
    ),
    protocol: str | None = typer.Option(
        None,
        help="How a paper attacks, of `rosewood list protocols`, or a YAML file; other options are deviations from it.",
        rich_help_panel=SEARCH,
    ),
    replay: list[Path] = typer.Option(
        [],
        metavar="FOLDER",
        help="In place of --attack: ask for the texts that an attack found, kept in this folder (repeatable).",
        rich_help_panel=SEARCH,
    ),
    transfer: bool = typer.Option(
        False, "--transfer", help="Also try what is found on each run on the others.", rich_help_panel=SEARCH
    ),
    assignments: list[str] = typer.Option(
        [], "--set", help="Change one setting of the attack: population=20 (repeatable).", rich_help_panel=SEARCH
    ),
    threat: str | None = typer.Option(
        None, help="With --attack worst: words, characters or all.", show_default="words", rich_help_panel=SEARCH
    ),
    lexicon: str | None = typer.Option(
        None,
        help="counter-fitted, wordnet, roget, a JSON file of word -> substitutes, or a folder with a WN-LMF wordnet.",
        show_default="counter-fitted if --data-dir has it, else roget",
        rich_help_panel=SEARCH,
    ),
    masked_lm: str | None = typer.Option(
        None,
        metavar="MODEL",
        help="A masked language model that writes the words of bert-attack and bae: a folder or Hub name.",
        rich_help_panel=SEARCH,
    ),
    causal_lm: str | None = typer.Option(
        None,
        metavar="MODEL",
        help="A causal language model for fluency, as a constraint and in results: a folder, Hub name or `smollm2`.",
        rich_help_panel=SEARCH,
    ),
    task: str | None = typer.Option(
        None, help="A task or its YAML file.", show_default="the run's", rich_help_panel=DATA
    ),
    split: str | None = typer.Option(
        None, help="The split to attack.", show_default="test, or else validation", rich_help_panel=DATA
    ),
    test_file: Path | None = typer.Option(
        None,
        help="Your own data: CSV, TSV, JSON Lines or Parquet, with labels that the model knows.",
        rich_help_panel=DATA,
    ),
    text_column: list[str] = typer.Option(
        [],
        help="Column of --test-file with the text; twice for pairs.",
        show_default="the run's, or text",
        rich_help_panel=DATA,
    ),
    label_column: str | None = typer.Option(
        None,
        help="Column of --test-file with the label.",
        show_default="the run's, or label or labels",
        rich_help_panel=DATA,
    ),
    labels: str | None = typer.Option(
        None,
        help="Names of the model's outputs in their order, with commas.",
        show_default="those in its config.json",
        rich_help_panel=DATA,
    ),
    data_dir: Path | None = typer.Option(
        None,
        envvar="ROSEWOOD_DATA",
        help="Folder with the tasks' files.",
        show_default="the run's",
        rich_help_panel=DATA,
    ),
    examples: int | None = typer.Option(
        None,
        min=1,
        help="Attack a seeded sample of at most this size.",
        show_default="the protocol's, or 1000",
        rich_help_panel=DATA,
    ),
    settings: AttackSettings = AttackSettings(),  # noqa: B008  frozen
    output: Path | None = typer.Option(
        None,
        "--output",
        "-o",
        help="Where the results go.",
        show_default="RUN/attacks or CHECKPOINT/attacks",
    ),
    show: int = typer.Option(3, min=0, help="Print so many broken examples of each run."),
    jobs: int = typer.Option(1, min=1, help="Processes that share the examples on the CPUs of this machine."),
    engine: str = typer.Option("local", help="What runs the search: this machine, or a ray cluster."),
    ray_address: str | None = typer.Option(
        None,
        metavar="auto|local|HOST:PORT",
        help="The cluster; local starts one here and shuts it down.",
        show_default="RAY_ADDRESS, or local",
        rich_help_panel="Ray",
    ),
    cpus: int | None = typer.Option(
        None,
        min=1,
        help="CPUs, and threads, of a block of examples.",
        show_default="OMP_NUM_THREADS, or 1",
        rich_help_panel="Ray",
    ),
    trust_remote_code: list[str] = typer.Option(
        [],
        metavar="RUN",
        help="Run the code that this run or checkpoint brings along (repeatable).",
        show_default=False,
    ),
) -> None:
    """Attack runs, or any classification checkpoints, and print one table.

    An attack that was stopped, by Ctrl-C or a crash, goes on when the same command is given again; one that is finished
    is read from its folder. Other settings, weights or data go to a folder of their own.
    """
    from rosewood.attacks.runner.api import choose_attack
    from rosewood.attacks.runner.constraints import constraints_of
    from rosewood.attacks.runner.protocols import load_protocol
    from rosewood.attacks.runner.report import added_by, deviations_told, diff, edits_told, warning_of
    from rosewood.cli.replays import Tries, replay_on
    from rosewood.comparison.attacks import attacked_grid
    from rosewood.config.strict_yaml import parse_overrides
    from rosewood.results.grid import Folded
    from rosewood.tensors.distributed import is_first

    console = Console(quiet=not is_first(), highlight=False, soft_wrap=True)
    if replay and (attack is not None or protocol is not None):
        raise RunError("--replay tries texts that were found before: leave out --attack and --protocol, or --replay")
    if transfer and len(runs) < 2:
        raise RunError("--transfer tries what is found on each run on the others: name at least two runs")
    blocks = _engine(engine, jobs, ray_address, cpus)
    tries = Tries(settings, names_in(labels), output, show, trust_remote_code, console)
    if replay:
        replay_on(runs, dict.fromkeys(replay), tries)
        return
    own = own_file(test_file, text_column, label_column, task)
    if own is not None and split is not None:
        raise RunError("--split is one of a task, and --test-file has none: leave one of the two out")
    if attack is None and protocol is None:
        raise RunError("say how to attack: --attack NAME (rosewood list attacks) or --protocol NAME (list protocols)")
    options = {"attack": attack, "lexicon": lexicon, "masked_lm": masked_lm, "examples": examples}
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    given |= {name: getattr(settings, name) for name in settings.model_fields_set}
    given["set"] = parse_overrides([*assignments, *([f"threat={threat}"] if threat else [])])
    chosen = None if protocol is None else load_protocol(protocol)
    orders = Orders(given, chosen, task, split, own, names_in(labels), data_dir, causal_lm)
    found = orders.on(None)
    choose_attack(found.values["attack"], found.values["set"])
    if causal_lm is None and any("causal_lm" in rule.needs() for rule in constraints_of(found.settings())):
        raise RunError("the constraint fluency needs a causal language model: name one with --causal-lm, e.g. smollm2")
    for run in runs:  # all of them before the first, which may take hours
        check_run(run, task, own=own)
    if settings.max_length is None and (length := common_length(runs, trust_remote_code, console)):
        orders = replace(orders, length=length)
    results, folders = {}, dict[Path, str | None]()
    for run in runs:
        campaign, names = _prepare(run, orders, trust_remote_code)
        folder = _folder(run, output, campaign)
        folders[folder] = run
        if lexicon is None and campaign.resources.lexicon and campaign.resources.lexicon.name == "roget":
            console.print("No counter-fitted neighbours in the data folder: words come from the lexicon roget.")
        results[run] = carry_out_told(campaign, folder, jobs, console, blocks)
        if warning := warning_of(results[run]):
            console.print(warning, markup=False)
        for said in filter(None, [tell(results[run]) for tell in (deviations_told, added_by, edits_told)]):
            console.print(said, markup=False)
        for example in [each for each in results[run].examples if each.status == "broken"][:show]:
            console.print(diff(example, names), end="\n\n")
    Console(quiet=not is_first()).print(Folded(attacked_grid(results)))
    if transfer:
        length = settings.max_length or next(iter(results.values())).max_length
        replay_on(runs, folders, replace(tries, settings=settings.model_copy(update={"max_length": length}), show=0))


def carry_out_told(
    campaign: Campaign, folder: Path, jobs: int, console: Console, engine: Engine | None = None
) -> AttackResult:
    """Carry a campaign out, or read its result, and say where that is."""
    from rosewood.attacks.runner.execute import carry_out, finished

    if finished(campaign, folder):
        console.print(f"This attack was made before; its result is in {folder}", markup=False)
    try:
        result = carry_out(campaign, folder, jobs, engine=engine)
    except KeyboardInterrupt:
        console.print(f"Interrupted; what is finished is kept in {folder}. Give the same command again to go on.")
        raise typer.Exit(130) from None
    left = f", {result.summary.left_out} not begun in time" if result.summary.left_out else ""
    console.print(
        f"{result.summary.examples} examples in {result.seconds:.0f} s{left}. The result is in {folder}", markup=False
    )
    return result


def _engine(name: str, jobs: int, address: str | None, cpus: int | None) -> Engine | None:
    """What runs the blocks, if not processes of this machine; options of another engine are refused."""
    if name == "ray":
        from rosewood.experiments.engines.ray_blocks import RayBlocks

        if jobs > 1:
            raise RunError("--jobs is for local processes: on Ray, --cpus says how much room a block takes")
        return RayBlocks(address, cpus).blocks
    if name != "local":
        raise RunError(f"unknown engine {name!r}: {closest(name, ['local', 'ray'])}")
    if address is not None or cpus is not None:
        raise RunError("--ray-address and --cpus are Ray's: add --engine ray, or leave them out")
    return None


def _prepare(run: str, orders: Orders, trusted: Collection[str]) -> tuple[Campaign, list[str]]:
    """The campaign against one run, and the names of its labels; a run knows its task, data folder and text length."""
    from accelerate import PartialState

    from rosewood.attacks.runner.api import choose_attack, prepare
    from rosewood.data.loading import load_split
    from rosewood.data.own import own_task
    from rosewood.models.open import open_run

    opened = open_run(run, trusted)
    if orders.labels is not None:
        name_outputs(opened.model, orders.labels)
    folder = orders.data_dir or (Path(opened.data_dir) if opened.data_dir else None)
    is_unknown = orders.own is not None and opened.info is None
    known = None if is_unknown else task_of(run, orders.task, opened.folder)
    if orders.own is None:
        assert known is not None, "a checkpoint needs --task or --test-file"
        task, own = known, None
    else:
        own = in_words_of(orders.own, opened.folder)
        task = own_task(own.file, opened.model.config, own.text_columns, own.label_column)
    chosen = orders.on(None if is_unknown else (known or task).name)
    settings = chosen.settings()
    split = orders.split or ("test" if "test" in task.splits else "validation")
    examples = chosen.values.get("examples", EXAMPLES_USUALLY)
    data = load_split(task, split, folder, examples, settings.seed, multi_label=True)
    # Processes of torchrun meet here; the one that is done first waits for the last, which can take hours.
    device = PartialState(timeout=timedelta(weeks=4)).device
    campaign = prepare(
        opened.model.to(device),
        opened.tokenizer,
        data,
        attack := choose_attack(chosen.values["attack"], chosen.values["set"]),
        _resources(attack, chosen, orders.causal_lm, known or task, folder),
        settings.model_copy(update={"max_length": settings.max_length or orders.length or opened.max_length}),
        labels=task.labels,
        task=task.name,
        split=split,
        test_file=own and own.model_copy(update={"file": str(Path(own.file).resolve()), "text_columns": task.text}),
        protocol=None if orders.protocol is None else orders.protocol.name,
        deviations=chosen.deviations,
    )
    return campaign, task.labels


def _resources(attack: Attack, chosen: Resolved, causal_lm: str | None, task: Task, folder: Path | None) -> Resources:
    """What the attack needs, and an encoder to compare texts with if there is one."""

    from rosewood.attacks.runner.api import provisions
    from rosewood.attacks.runner.constraints import constraints_of

    values, rules = chosen.values, constraints_of(chosen.settings())
    found = provisions(attack, task, folder, values.get("lexicon"), values.get("masked_lm"), causal_lm, rules)
    return found if found.encoder else replace(found, encoder=_encoder())


def _encoder() -> Encoder | None:
    from rosewood.words.masked_lm import SentenceEncoder

    try:
        return SentenceEncoder.load()
    except DataError:
        return None


def _folder(run: str, output: Path | None, campaign: Campaign) -> Path:
    """A folder for this campaign and no other."""
    place = results_folder(run)
    inside = Path("attacks") / Path(run).resolve().name if place is None else place / "attacks"
    return (output or inside) / file_name(f"{campaign.attack.name}-{campaign.split}-{campaign.fingerprint[:8]}")

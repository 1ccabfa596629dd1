"""rosewood attack: accuracy under attack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from rosewood.cli import app, check_models, options_of_settings
from rosewood.cli.attack_targets import AttackRequest, ReplayRequest, carry_out_and_show, replay_on, target_of
from rosewood.cli.evaluate import (
    check_run,
    common_length,
    own_file,
    results_folder,
)
from rosewood.cli.options import (
    BLOCK_CPUS,
    OUTPUT_NAMES,
    RAY_ADDRESS,
    RUN_DATA_DIR,
    RUN_TASK,
    TEST_FILE,
    TEST_LABEL_COLUMN,
    TEST_TEXT_COLUMN,
    TRUSTED_RUNS,
)
from rosewood.cli.train import file_name
from rosewood.config.settings import DATA, SEARCH, AttackSettings, names_in
from rosewood.errors import RunError, closest

if TYPE_CHECKING:
    from rosewood.attacks.runner.execute import Engine
    from rosewood.attacks.runner.job import Campaign

EXAMPLES = """
[bold]Examples[/]

  rosewood attack runs/vanilla runs/rose --attack pwws

  rosewood attack runs/rose --attack genetic --set population=20 --set generations=10 --examples 200 --jobs 4

  rosewood attack runs/vanilla runs/rose --protocol textdefender --examples 200

  rosewood attack ./my-checkpoint --task sst2 --attack typos --max-seconds 60

  rosewood attack org/model-on-the-hub --test-file mine.csv --labels bad,good --attack pwws

  rosewood attack runs/vanilla runs/rose --threat words --examples 200

  rosewood attack ./my-ner-model --test-file sentences.jsonl --attack typos

  rosewood attack runs/rose --attack textfooler --constraint words_share=0.2 --constraint similarity=0.8,to=last

  torchrun --nproc-per-node 4 -m rosewood attack runs/rose --attack textfooler

  rosewood attack runs/rose --attack worst --engine ray --ray-address auto

  rosewood attack runs/vanilla runs/rose --attack pwws --transfer

  rosewood attack runs/rose --replay runs/vanilla/attacks/pwws-test-0f3c9a1e
"""


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
        None,
        help="What may change under --attack worst: words, characters or all; without --attack, that is the attack.",
        show_default="words",
        rich_help_panel=SEARCH,
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
    task: str | None = RUN_TASK,
    split: str | None = typer.Option(
        None, help="The split to attack.", show_default="test, or else validation", rich_help_panel=DATA
    ),
    test_file: Path | None = TEST_FILE,
    text_column: list[str] = TEST_TEXT_COLUMN,
    label_column: str | None = TEST_LABEL_COLUMN,
    labels: str | None = OUTPUT_NAMES,
    data_dir: Path | None = RUN_DATA_DIR,
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
    show: int = typer.Option(3, min=0, help="Number of broken examples to print for each run."),
    jobs: int = typer.Option(1, min=1, help="Processes that share the examples on the CPUs of this machine."),
    engine: str = typer.Option("local", help="What runs the search: this machine, or a ray cluster."),
    ray_address: str | None = RAY_ADDRESS,
    cpus: int | None = BLOCK_CPUS,
    trust_remote_code: list[str] = TRUSTED_RUNS,
) -> None:
    """Attack runs, or any classification checkpoints, and print one table.

    An attack that was stopped, by Ctrl-C or a crash, goes on when the same command is given again; one that is finished
    is read from its folder. Other settings, weights or data go to a folder of their own.
    """
    from rosewood.results import TestFile

    attack = _chosen(attack, protocol, threat, bool(replay))
    if transfer and len(runs) < 2:
        raise RunError("--transfer tries what is found on each run on the others: name at least two runs")
    check_models(runs, trained=True)
    own = own_file(test_file, text_column, label_column, task)
    if own is not None and split is not None:
        raise RunError("--split is one of a task, and --test-file has none: leave one of the two out")
    _check_files(lexicon, protocol, replay)
    from rosewood.attacks.runner.protocols import load_protocol  # slow, and so are the imports below

    chosen = None if protocol is None else load_protocol(protocol)
    for run in runs:  # all of them before the first, which may take hours
        check_run(run, task, own=own or (TestFile(file="", text_columns=[]) if replay else None))

    from rosewood.attacks.runner.api import choose_attack
    from rosewood.attacks.runner.constraints import constraints_of
    from rosewood.attacks.runner.report import added_by, deviations_caption, diff, edits_caption, warning_of
    from rosewood.comparison.attack_tables import attacked_grid
    from rosewood.config.strict_yaml import parse_overrides
    from rosewood.results.grid import Folded
    from rosewood.tensors.shards import is_first

    console = Console(quiet=not is_first(), highlight=False, soft_wrap=True)
    blocks = _engine(engine, jobs, ray_address, cpus)
    replays = ReplayRequest(settings, names_in(labels), output, show, trust_remote_code, console)
    if replay:
        replay_on(runs, dict.fromkeys(replay), replays)
        return
    options = {"attack": attack, "lexicon": lexicon, "masked_lm": masked_lm, "examples": examples}
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    given |= {name: getattr(settings, name) for name in settings.model_fields_set}
    given["set"] = parse_overrides([*assignments, *([f"threat={threat}"] if threat else [])])
    request = AttackRequest(given, chosen, task, split, own, names_in(labels), data_dir, causal_lm)
    found = request.on(None)
    choose_attack(found.values["attack"], found.values["set"])
    if causal_lm is None and any("causal_lm" in rule.needs() for rule in constraints_of(found.settings())):
        raise RunError("the constraint fluency needs a causal language model: name one with --causal-lm, e.g. smollm2")
    if settings.max_length is None and (length := common_length(runs, trust_remote_code, console)):
        request = replace(request, length=length)
    results, folders = {}, dict[Path, str | None]()
    for run in runs:
        campaign, names = target_of(run, request, trust_remote_code)
        folder = _folder(run, output, campaign)
        folders[folder] = run
        if lexicon is None and campaign.resources.lexicon and campaign.resources.lexicon.name == "roget":
            console.print("No counter-fitted neighbours in the data folder: words come from the lexicon roget.")
        results[run] = carry_out_and_show(campaign, folder, jobs, console, blocks)
        if warning := warning_of(results[run]):
            console.print(warning, markup=False)
        for said in filter(None, [tell(results[run]) for tell in (deviations_caption, added_by, edits_caption)]):
            console.print(said, markup=False)
        for example in [each for each in results[run].examples if each.status == "broken"][:show]:
            console.print(diff(example, names), end="\n\n")
    Console(quiet=not is_first()).print(Folded(attacked_grid(results)))
    if transfer:
        length = settings.max_length or next(iter(results.values())).max_length
        replay_on(runs, folders, replace(replays, settings=settings.model_copy(update={"max_length": length}), show=0))


def _chosen(attack: str | None, protocol: str | None, threat: str | None, replay: bool) -> str | None:
    """The attack that the options name; None if the protocol or a replay says it."""
    from rosewood.attacks import THREATS, known_attack

    if replay and (attack is not None or protocol is not None or threat is not None):
        raise RunError(
            "--replay tries texts that were found before: leave out --attack and --protocol (and --threat), or --replay"
        )
    if threat is not None:
        if threat not in THREATS:
            raise RunError(f"unknown threat {threat!r}: {closest(threat, list(THREATS))}")
        if attack not in (None, "worst") or protocol is not None:
            raise RunError(
                "--threat says what several attacks together may change: it goes with --attack worst, or with neither "
                "--attack nor --protocol"
            )
        return "worst"
    if attack is None and protocol is None and not replay:
        raise RunError(
            "say how to attack: --attack NAME (rosewood list attacks) or --protocol NAME (list protocols), or what may "
            "change: --threat words"
        )
    return None if attack is None else known_attack(attack)


def _check_files(lexicon: str | None, protocol: str | None, replays: list[Path]) -> None:
    """Whether files that are named are there."""
    from rosewood.attacks import protocol_file

    if protocol is not None:
        protocol_file(protocol)
    if lexicon is not None and lexicon.endswith(".json") and not Path(lexicon).is_file():
        raise RunError(f"{lexicon}: no such file, expected a JSON object of word -> substitutes")
    for folder in replays:
        if not (folder / "attack.json").is_file():
            raise RunError(
                f"{folder}/attack.json does not exist: name the folder of a finished attack, RUN/attacks/NAME"
            )


def _engine(name: str, jobs: int, address: str | None, cpus: int | None) -> Engine | None:
    """What runs the blocks, if not processes of this machine; options of another engine are refused."""
    if name == "ray":
        from rosewood.experiments.engines.ray import RayBlocks

        if jobs > 1:
            raise RunError("--jobs is for local processes: on Ray, --cpus says how much room a block takes")
        return RayBlocks(address, cpus).blocks
    if name != "local":
        raise RunError(f"unknown engine {name!r}: {closest(name, ['local', 'ray'])}")
    if address is not None or cpus is not None:
        raise RunError("--ray-address and --cpus are Ray's: add --engine ray, or leave them out")
    return None


def _folder(run: str, output: Path | None, campaign: Campaign) -> Path:
    """A folder for this campaign and no other."""
    place = results_folder(run)
    inside = Path("attacks") / Path(run).resolve().name if place is None else place / "attacks"
    return (output or inside) / file_name(f"{campaign.attack.name}-{campaign.split}-{campaign.fingerprint[:8]}")

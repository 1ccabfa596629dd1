"""From an experiment to its cells; everything that is wrong with it is found here, and said at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub.utils import HFValidationError, validate_repo_id

from rosewood.attacks.runner.api import choose_attack
from rosewood.attacks.runner.constraints import constraints_of
from rosewood.attacks.runner.job import searches_of
from rosewood.config.strict_yaml import typed_arguments
from rosewood.data.loading import source_identity
from rosewood.data.suites import load_suite
from rosewood.data.tasks import Task, load_task
from rosewood.defences.runner.wrap import choose_defence
from rosewood.errors import RosewoodError, closest
from rosewood.evaluation.sets import PlannedSet, plan_of_suite, plan_of_task
from rosewood.experiments.cell import Cell
from rosewood.experiments.experiment import (
    AttackChoice,
    EvaluationChoice,
    Experiment,
    RecipeChoice,
    TaskChoice,
    problems_of,
)
from rosewood.models.names import folder_fingerprint
from rosewood.recipe import Recipe, load_recipe
from rosewood.training.plan import LORA_RATE, RATES, lexicon_sources
from rosewood.training.run import settled
from rosewood.words.lexicon import check_lexicon, lexicon_identity

Found = TypeVar("Found")
Made = tuple[RecipeChoice, Recipe]
_DEFAULT_RATES = {"learning rates": {"lora": LORA_RATE} | {str(width): rate for width, rate in RATES.items()}}


def cells_of(experiment: Experiment, data_dir: str | Path | None = None) -> list[Cell]:
    """Every cell in the order of the file: tasks, then models, then recipes, then seeds; or all problems at once."""
    grid = _Grid(experiment, None if data_dir is None else str(data_dir))
    cells = list(grid.cells())
    grid.check_names()
    if grid.problems:
        raise problems_of(f"experiment {experiment.name}", grid.problems)
    return cells


def evaluated_task(task: Task, sets: Sequence[str] | None) -> Task:
    """The task with these evaluation sets alone."""
    if sets is None:
        return task
    kept = {name: split for name, split in task.splits.items() if split.role == "train" or name in sets}
    return task.model_copy(update={"splits": kept})


@dataclass(frozen=True)
class _Grid:
    experiment: Experiment
    data_dir: str | None
    problems: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    """Their own names, where the experiment may have named a file."""
    suites: dict[str, int | None] = field(default_factory=dict)
    """Their own names, and how many examples of each set are taken."""

    def cells(self) -> Iterator[Cell]:
        """Those that can be made; what is wrong with the others goes to the problems."""
        models = [model for model in self.experiment.models if self._model_is_good(model)]
        usual = [self._made(choice, f"recipes.{place}") for place, choice in enumerate(self.experiment.recipes)]
        for number, chosen in enumerate(self.experiment.tasks):
            task = self._tried(f"tasks.{number}", load_task, chosen.task)
            self.tasks.append(chosen.task if task is None else task.name)
            if task is None:
                continue
            self._check_training({**self.experiment.training, **chosen.training}, f"tasks.{number}")
            evaluation = chosen.evaluation or self.experiment.evaluation or EvaluationChoice()
            sources = self._sources(task, chosen, evaluation, f"tasks.{number}")
            self._check_moments(task, chosen, evaluation, f"tasks.{number}")
            made = [self._on_task(each, chosen, f"tasks.{number}.recipes") for each in usual if each is not None]
            for model in models:
                identity = folder_fingerprint(model)
                cells = [
                    cell
                    for choice in filter(None, made)
                    for cell in self._seeds(task, chosen, evaluation, model, choice, sources | {"model": identity})
                ]
                yield from self._from_checkpoint(cells, model, f"tasks.{number}")

    def _from_checkpoint(self, cells: list[Cell], model: str, where: str) -> list[Cell]:
        """The cells with the pre-trained model that theirs names; what is wrong with its labels is a problem."""
        plan = cells[0].plan() if cells else None
        if plan is None or (plan.pretrained is None and not Path(model).is_dir()):
            return cells
        found = self._tried(where, settled, plan)
        if found is None or found.plan.pretrained in (None, model):
            return cells
        name = str(found.plan.pretrained)
        return [
            cell.model_copy(
                update={
                    "settings": cell.settings | {"pretrained": name},
                    "sources": cell.sources | {"pretrained": folder_fingerprint(name)},
                }
            )
            for cell in cells
        ]

    def check_names(self) -> None:
        """Labels, and whatever refers to them."""
        labels = [choice.name for choice in self.experiment.recipes]
        attacks = [choice.name for choice in self.experiment.attacks]
        for what, names in (
            ("recipes", labels), ("tasks", self.tasks), ("models", self.experiment.models),
            ("seeds", [str(seed) for seed in self.experiment.seeds]), ("attacks", attacks),
        ):  # fmt: skip
            twice = [name for name, times in Counter(names).items() if times > 1]
            advice = ": give each a label of its own" if what in ("recipes", "attacks") else ""
            self.problems.extend(f"{what}: {name} is there more than once{advice}" for name in twice)
        baseline = self.experiment.baseline
        if baseline is not None and baseline not in labels:
            self.problems.append(f"baseline: no recipe is called {baseline!r}; {closest(baseline, labels)}")
        for chosen in self.experiment.tasks:
            for what, replaced, known in (("recipe", chosen.recipes, labels), ("attack", chosen.attacks, attacks)):
                self.problems.extend(
                    f"task {chosen.task}, {what}s.{label}: no {what} is called so; {closest(label, known)}"
                    for label in replaced
                    if label not in known
                )
            for label, attack in chosen.attacks.items():
                self._check_attack(attack, f"task {chosen.task}, attacks.{label}")
        self._check_published(labels)
        for number, attack in enumerate(self.experiment.attacks):
            self._check_attack(attack, f"attacks.{number}")

    def _check_attack(self, choice: AttackChoice, where: str) -> None:
        attack = self._tried(f"{where}.protocol", choice.on, None)
        if attack is None:
            return
        self._tried(where, choose_attack, attack.attack, attack.changes)
        self._tried(f"{where}.lexicon", check_lexicon, attack.lexicon)
        rules = self._tried(f"{where}.constraints", constraints_of, attack) or ()
        if attack.causal_lm is None and any("causal_lm" in rule.needs() for rule in rules):
            self.problems.append(f"{where}.constraints: fluency needs a causal language model: name one as `causal_lm`")

    def _check_published(self, labels: list[str]) -> None:
        places = [*self.tasks, *self.suites]
        for label, found in self.experiment.published.items():
            if label not in labels:
                self.problems.append(f"published: no recipe is called {label!r}; {closest(label, labels)}")
            self.problems.extend(
                f"published.{label}: {place!r} is neither a task nor a suite here; {closest(place, places)}"
                for place in found
                if place not in places
            )
        if self.experiment.published and len(self.experiment.models) > 1:
            self.problems.append("published: the figures are those of one model, and there are several here")

    def _on_task(self, usual: Made, chosen: TaskChoice, where: str) -> Made | None:
        """What a label means on a task."""
        label = usual[0].name
        own = chosen.recipes.get(label)
        return usual if own is None else self._made(own.model_copy(update={"label": label}), f"{where}.{label}")

    def _attacks(self, chosen: TaskChoice, task: str) -> list[AttackChoice]:
        """The attacks on a task, under the labels that all tasks know them by."""
        own = {label: attack.model_copy(update={"label": label}) for label, attack in chosen.attacks.items()}
        made = [self._tried(f"attack {each.name}", each.on, task) for each in self._labelled(own)]
        return [each for each in made if each is not None]

    def _labelled(self, own: dict[str, AttackChoice]) -> list[AttackChoice]:
        return [own.get(attack.name, attack) for attack in self.experiment.attacks]

    def _made(self, choice: RecipeChoice, where: str) -> Made | None:
        wrong = [key for key in choice.changes if key.partition(".")[0] == "training"]
        self.problems.extend(f"{where}.set.{key}: training arguments belong under `training`" for key in wrong)
        self._check_training(choice.training, where)
        if choice.wrap is not None:
            self._tried(f"{where}.wrap", choose_defence, choice.wrap.defence, choice.wrap.changes)
            self._tried(f"{where}.wrap.lexicon", check_lexicon, choice.wrap.lexicon)
        recipe = self._tried(where, load_recipe, choice.recipe, choice.changes)
        return None if recipe is None else (choice, recipe)

    def _seeds(
        self,
        task: Task,
        chosen: TaskChoice,
        evaluation: EvaluationChoice,
        model: str,
        made: Made,
        sources: dict[str, Any],
    ) -> Iterator[Cell]:
        choice, recipe = made
        settings = self.experiment.run_settings() | chosen.run_settings()
        sources = sources | lexicon_sources(recipe, settings.get("select_by"), self.data_dir)
        if choice.wrap is not None:
            sources = sources | {"wrap": lexicon_identity(choice.wrap.lexicon, self.data_dir)}
        for seed in self.experiment.seeds:
            cell = Cell(
                label=choice.name,
                recipe=recipe.to_dict(),
                task=task.to_dict(),
                model=model,
                seed=seed,
                settings=settings,
                lora=chosen.lora or self.experiment.lora,
                training=self.experiment.training | chosen.training | choice.training,
                evaluation=evaluation,
                attacks=self._attacks(chosen, task.name),
                wrap=choice.wrap,
                data_dir=self.data_dir,
                sources=sources,
            )
            self._check_at_steps(cell)
            yield cell if cell.plan().has_rate else cell.model_copy(update={"sources": sources | _DEFAULT_RATES})

    def _check_at_steps(self, cell: Cell) -> None:
        if cell.wrap is not None and cell.evaluation.at_steps:
            self.problems.append(
                f"evaluation.at_steps: {cell.label} has a defence around the model, which is put there after training, "
                "so it cannot be measured earlier: leave out one or the other"
            )
        late = max(cell.evaluation.at_steps, default=0)
        steps = cell.steps() if late else None
        if steps is not None and late >= steps:
            self.problems.append(
                f"evaluation.at_steps: {cell.label} on {cell.task['name']} trains for {steps} steps and is measured at "
                f"its end anyway; expected smaller numbers, got {late}"
            )

    def _sources(self, task: Task, chosen: TaskChoice, evaluation: EvaluationChoice, where: str) -> dict[str, Any]:
        """What the cells of a task read, by what it is for."""
        splits = [name for name in ("train", "validation") if name in task.splits]
        found: dict[str, Any] = {name: source_identity(task, name, self.data_dir) for name in splits}
        found["evaluation"] = self._tried(f"{where}, evaluation", self._measured, task, evaluation)
        select_by = chosen.select_by or self.experiment.select_by
        if select_by is not None:
            self._tried(f"{where}, select_by", choose_attack, select_by)
        for attack in self._attacks(chosen, task.name):
            split = "test" if "test" in task.splits else "validation"
            rows = source_identity(task, split, self.data_dir)
            lexicon = lexicon_identity(attack.lexicon, self.data_dir)
            found[f"attack {attack.name}"] = [rows, lexicon, searches_of(attack.attack, attack)]
        return found

    def _check_moments(self, task: Task, chosen: TaskChoice, evaluation: EvaluationChoice, where: str) -> None:
        """Moments are compared by their validation accuracy, and the last of them is the end of training."""
        if not evaluation.at_steps:
            return
        if "validation" not in task.splits:
            self.problems.append(
                f"{where}, evaluation.at_steps: task {task.name} has no validation split to compare by"
            )
        settings = self.experiment.run_settings() | chosen.run_settings()
        if settings.get("early_stopping") or settings.get("select_by"):
            self.problems.append(
                f"{where}, evaluation.at_steps: early_stopping and select_by keep the weights of some epoch, so that "
                "training has no end to measure: leave out one or the other"
            )

    def _measured(self, task: Task, evaluation: EvaluationChoice) -> dict[str, Any]:
        if evaluation.suite is None:
            unknown = [name for name in evaluation.sets or [] if name not in task.splits]
            known = [name for name, split in task.splits.items() if split.role != "train"]
            self.problems.extend(f"task {task.name} has no set {name!r}; {closest(name, known)}" for name in unknown)
            planned = plan_of_task(evaluated_task(task, evaluation.sets), evaluation.typo_rate)
        else:
            if evaluation.sets is not None:
                self.problems.append("evaluation: `sets` are those of a task, and a suite is measured as a whole")
            suite = load_suite(evaluation.suite)
            if self.suites.setdefault(suite.name, evaluation.size) != evaluation.size:
                self.problems.append(f"evaluation: tasks on the suite {suite.name} share a table: give them one size")
            planned = plan_of_suite(suite, task.name)
            if sorted(planned.labels) != sorted(task.labels):
                self.problems.append(
                    f"the suite {suite.name} has the labels {', '.join(planned.labels)}, "
                    f"the task {task.name} has {', '.join(task.labels)}: choose another suite or task"
                )
        return {
            "sets": [self._set_identity(each) for each in planned.sets],
            "max_length": planned.max_length,
            "merge": planned.merge,
            "inside": list(planned.inside),
        }

    def _set_identity(self, planned: PlannedSet) -> list[Any]:
        source = planned.absent if planned.task is None else source_identity(planned.task, planned.split, self.data_dir)
        noise = planned.noise and planned.noise.model_dump(mode="json")
        facts = [planned.name, planned.role, list(planned.labels), planned.max_length, planned.sample]
        return [*facts, list(planned.groups), planned.counted, noise, source]

    def _check_training(self, training: dict[str, Any], where: str) -> None:
        found: list[str] = []
        typed_arguments(training, found)
        own = [name for name in ("output_dir", "seed") if name in training]
        found += [f"training.{name}: an experiment sets it itself" for name in own]
        self.problems.extend(f"{where}: {problem}" for problem in found)

    def _model_is_good(self, model: str) -> bool:
        """A folder must hold a model; a name can only be checked for its form."""
        if Path(model).is_dir():
            if (Path(model) / "config.json").exists():
                return True
            self.problems.append(f"models: the folder {model} holds no model (no config.json)")
            return False
        try:
            validate_repo_id(model)
        except HFValidationError:
            self.problems.append(f"models: {model!r} is neither a folder nor a name that a model on the Hub can have")
            return False
        return True

    def _tried(self, where: str, make: Callable[..., Found], *given: Any) -> Found | None:
        try:
            return make(*given)
        except RosewoodError as error:
            self.problems.append(f"{where}: {error}")
            return None

"""What holds for every attack: batches, order and budgets change nothing they should not."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.attacks.bae import Bae
from rosewood.attacks.bert_attack import BertAttack
from rosewood.attacks.genetic import Genetic
from rosewood.attacks.gradient import Gradient
from rosewood.attacks.imperceptible import Imperceptible
from rosewood.attacks.pwws import Pwws
from rosewood.attacks.runner import job
from rosewood.attacks.runner.api import attack
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.example import Answers, Asked
from rosewood.attacks.runner.report import load_attack
from rosewood.attacks.runner.search import Search, Target, move, probe
from rosewood.attacks.textbugger import TextBugger
from rosewood.attacks.textfooler import TextFooler
from rosewood.attacks.typos import Typos
from rosewood.attacks.worst import Worst
from rosewood.config.registry import component_names
from rosewood.config.settings import AttackSettings
from rosewood.errors import DataError, RecipeError, RunError
from rosewood.results import AttackResult
from rosewood.words.language_models import MaskedLM
from rosewood.words.lexicon import Lexicon
from rosewood.words.text import WORD, replaced
from tiny_attack import ENTRIES, WORDS, predicted
from tiny_text import tiny_classifier

Run = Callable[..., AttackResult]
ATTACKS: dict[str, Attack] = {
    "bae": Bae("R+I", candidates=5, min_similarity=None),
    "bert_attack": BertAttack(candidates=6, combinations=6),
    "genetic": Genetic(population=6, generations=3, min_log_ratio=None),
    "gradient": Gradient(),
    "imperceptible": Imperceptible(max_edits=3),
    "pwws": Pwws(),
    "textbugger": TextBugger(),
    "textfooler": TextFooler(min_similarity=None),
    "typos": Typos(),
    "worst": Worst(attacks="gradient,pwws"),
}
PUBLISHED: tuple[Literal["probability", "raw-margin"], ...] = ("probability", "raw-margin")
OTHER_FORMS: dict[str, Attack] = {
    "gradient on letters": Gradient(edits="characters"),
    "gradient, beam of 3": Gradient(beam_width=3),
    "imperceptible, evolution": Imperceptible(max_edits=2, strategy="evolution", population=4),
    "worst, words": Worst(),
    "worst, characters": Worst(threat="characters"),
}
"""Searches that another setting makes another one."""
each = pytest.mark.parametrize("method", list(ATTACKS.values()), ids=list(ATTACKS))
each_form = pytest.mark.parametrize("method", (ATTACKS | OTHER_FORMS).values(), ids=ATTACKS | OTHER_FORMS)


def by_text(result: AttackResult) -> dict[str, Any]:
    """The records, without the row and figures that depend on the last bits of a float."""
    return {
        "|".join(example.texts.values()): example.model_dump(
            exclude={"row", "probabilities", "adversarial_probabilities"}
        )
        for example in result.examples
    }


def test_every_attack_is_tested_here() -> None:
    assert list(ATTACKS) == component_names("attack")


@each
def test_batch_size_and_order_change_nothing(
    method: Attack, model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    one = run(model, single, method, batch_size=1)
    assert by_text(run(model, single, method, batch_size=64)) == by_text(one)
    assert by_text(run(model, single.select(range(29, -1, -1)), method)) == by_text(one)
    few = run(model, single.select([4, 17]), method)
    assert by_text(few).items() <= by_text(one).items()
    assert len(one.examples) == 30 and one.summary.counts["wrong"] == 3 and one.summary.counts["broken"] >= 5


@each_form
def test_the_confidence_of_the_model_changes_nothing(
    method: Attack,
    model: BertForSequenceClassification,
    model3: BertForSequenceClassification,
    single: Dataset,
    pairs: Dataset,
    run: Run,
) -> None:
    for classifier, data in ((model, single), (model3, pairs)):
        free = run(classifier, data, method)
        for factor in (0.01, 0.05, 20, 1000):
            assert by_text(run(scaled(deepcopy(classifier), factor), data, method)) == by_text(free), factor
        assert free.summary.counts["broken"] >= 5 and free.summary.mean_queries > 5  # type: ignore[operator]


@each
def test_what_is_added_to_all_logits_changes_nothing(
    method: Attack, model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    free = run(model, single, method)
    raised = scaled(deepcopy(model).double(), 200)  # in float32, 10,000 leaves three decimals for what differs
    raised.classifier.bias.data += 1e4
    assert by_text(run(raised, single, method)) == by_text(free)


def scaled(model: BertForSequenceClassification, factor: float) -> BertForSequenceClassification:
    """Multiply all logits, which changes no prediction."""
    with torch.no_grad():
        for parameter in model.classifier.parameters():
            parameter *= factor
    return model


@pytest.mark.parametrize(
    "method",
    [
        Pwws(scores="probability"),
        Bae(min_similarity=None, scores="probability"),
        BertAttack(scores="probability"),
        Imperceptible(max_edits=3, scores="probability"),
        TextBugger(scores="probability"),
        TextFooler(min_similarity=None, scores="probability"),
        *(Genetic(population=6, generations=3, min_log_ratio=None, fitness=form) for form in PUBLISHED),
    ],
    ids=repr,
)
def test_published_scores_depend_on_the_confidence(
    method: Attack, model3: BertForSequenceClassification, pairs: Dataset, run: Run
) -> None:
    free = run(model3, pairs, method)
    assert free.summary.counts["broken"] >= 5
    scaled(model3, 1000)
    assert by_text(run(model3, pairs, method)) != by_text(free)


@each
def test_records_can_be_checked_against_the_model(
    method: Attack, model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, single: Dataset, run: Run
) -> None:
    result = run(model, single, method)
    model.eval()

    def predict(text: str) -> torch.Tensor:
        with torch.no_grad():
            return model(**tokenizer(text, return_tensors="pt")).logits[0].double().softmax(0)

    for example in result.examples:
        assert example.texts == {"text": single[example.row]["text"]}
        assert predict(example.texts["text"]).tolist() == pytest.approx(example.probabilities, abs=1e-5)
        assert (example.status == "wrong") == (example.prediction != example.label) == (example.row % 10 == 0)
        if example.status == "wrong":
            assert example.queries in ((1, 3) if method.opens else (1,))
        if example.status == "broken":
            assert example.adversarial is not None
            after = predict(example.adversarial)
            assert int(after.argmax()) == example.adversarial_prediction != example.label
            assert after.tolist() == pytest.approx(example.adversarial_probabilities, abs=1e-5)
            words = example.texts["text"].split()
            assert example.words == len(words) and example.changes
            for change in example.changes:
                assert words[change.position] == change.before != change.after
                words[change.position] = change.after
            assert " ".join(words) == example.adversarial
        else:
            assert example.adversarial is None and not example.changes


@each_form
def test_a_constant_classifier_is_never_broken(
    method: Attack, model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    torch.nn.init.zeros_(model.classifier.weight)
    model.classifier.bias.data = torch.tensor([0.1, 0.0])
    always = single.remove_columns("label").add_column("label", [0] * 30)
    summary = run(model, always, method).summary
    assert summary.counts == {"robust": 30} and summary.robust_accuracy == 1 and summary.success_rate == 0


@each
@pytest.mark.parametrize("field", ["premise", "hypothesis"])
def test_only_the_named_field_reaches_the_model_changed(
    method: Attack,
    field: str,
    model3: BertForSequenceClassification,
    pairs: Dataset,
    tokenizer: Any,
    lexicon: Lexicon,
    masked_lm: MaskedLM,
) -> None:
    seen = []
    spoken = _Listening(tokenizer, seen)
    few = pairs.select(range(8))
    attack(model3, spoken, few, method, lexicon=lexicon, masked_lm=masked_lm, field=field)  # type: ignore[arg-type]
    one, two = ({text for row in seen for text in row[i]} for i in (0, 1))
    fixed = {"premise": two, "hypothesis": one}[field]
    other = {"premise": "hypothesis", "hypothesis": "premise"}[field]
    assert fixed == set(pairs[other][:8]) and len(one | two) > 30


class _Listening:
    """A tokenizer that notes the texts it gets."""

    def __init__(self, tokenizer: Any, seen: list) -> None:
        self._tokenizer, self._seen = tokenizer, seen

    def __call__(self, *texts: list[str], **settings: Any) -> Any:
        if isinstance(texts[0], list):  # texts for the model, not a word whose tokens somebody wants to know
            self._seen.append(texts)
        return self._tokenizer(*texts, **settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


@pytest.mark.parametrize(
    "method", [ATTACKS[name] for name in ("pwws", "genetic", "gradient", "textfooler")], ids=lambda a: a.name
)
def test_words_outside_the_surface_are_never_edited(
    method: Attack, model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    changes = [change for example in run(model, single, method).examples for change in example.changes]
    assert changes and all(change.after in ENTRIES[change.before] for change in changes)


@each
def test_the_query_budget_holds_and_is_spent(
    method: Attack, model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    free = run(model, single, method)
    for budget in (1, 2, 25, 60):
        bound = run(model, single, method, max_queries=budget)
        for before, after in zip(free.examples, bound.examples, strict=True):
            assert after.queries <= budget
            if before.status == "wrong" or before.queries <= budget:
                assert after.status == before.status
            else:  # slopes cost three queries, and there may be two left
                assert after.status in ("out_of_queries", "broken")
                assert after.status == "broken" or after.queries >= budget - 2 * (method.name in ("gradient", "worst"))


@each_form
def test_a_larger_budget_never_breaks_less(
    method: Attack, model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    data, before, counts = single.select(range(1, 13)), set[int](), []
    for budget in (1, 2, 3, 5, 8, 12, 16, 20, 26, 34, 50, 80, 150, 1000):
        examples = run(model, data, method, max_queries=budget).examples
        broken = {example.row for example in examples if example.status == "broken"}
        assert before <= broken, budget
        before = broken
        counts.append(len(broken))
    free = {example.row for example in run(model, data, method).examples if example.status == "broken"}
    assert free <= before and counts[0] == 0 and len(set(counts)) >= 3


def test_a_small_budget_does_not_make_a_model_look_robust(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, run: Run
) -> None:
    """All that `pwws` wants to know first are 60 to 70 texts; the budget pays for some of them."""
    texts = [" ".join(WORDS[i] for i in torch.randint(len(WORDS), (14,)).tolist()) for _ in range(60)]
    data = Dataset.from_dict({"text": texts, "label": predicted(model, tokenizer, texts)})
    free = run(model, data, Pwws()).summary.counts["broken"]
    few = run(model, data, Pwws(), max_queries=20)
    assert all(example.queries == 20 or example.status == "broken" for example in few.examples)
    assert few.summary.counts["broken"] >= free / 4
    assert run(model, data, Pwws(), max_queries=36).summary.counts["broken"] >= free / 2


def test_results_with_a_budget_are_of_another_version(
    model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    data = single.select(range(2))
    assert [run(model, data, method).searches for method in (Typos(), Gradient())] == [4, 5]
    for budget in ({"max_queries": 9}, {"max_queries_per_word": 2}):
        assert [run(model, data, method, **budget).searches for method in (Typos(), Gradient())] == [6, 6]
    assert job.searches_of("textattack:pwws", AttackSettings(max_queries=9)) == 4


def test_queries_are_the_texts_that_the_model_scored(
    model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    rows: list[int] = []
    model.register_forward_pre_hook(lambda _, __, batch: rows.append(len(batch["input_ids"])), with_kwargs=True)
    result = run(model, single, ATTACKS["genetic"])
    assert sum(rows) == sum(example.queries for example in result.examples)
    bound = 1 + 6 * 5 + 3 * 5 * 5  # a population of 6, three generations of 5 children, at most 4 substitutes
    assert max(example.queries for example in result.examples) <= bound


def test_the_published_bound_of_genetic(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    result = run(model, single.select(range(1, 4)), Genetic(min_log_ratio=None))
    assert all(example.queries <= 1 + 60 * 9 + 40 * 59 * 9 for example in result.examples)


def test_no_more_is_pending_than_the_batches_ahead_and_one_question_each(
    model: BertForSequenceClassification, single: Dataset, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = []
    answers = job.Answering.answers

    def counted(model: job.Answering, asked: Asked, deadline: float | None) -> Answers | None:
        rounds.append(len(asked))
        return answers(model, asked, deadline)

    monkeypatch.setattr(job.Answering, "answers", counted)
    run(model, single, ATTACKS["pwws"], batch_size=2)
    assert max(rounds) < 16 * 2 + 16 * 50  # fewer than 16 examples begin at once, fewer than 50 texts a question
    assert len(rounds) > 5


def test_a_small_memory_costs_queries_but_changes_no_result(
    model: BertForSequenceClassification, single: Dataset, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = run(model, single, ATTACKS["genetic"])
    monkeypatch.setattr("rosewood.attacks.runner.example.REMEMBERED_WORDS", 60)
    small = run(model, single, ATTACKS["genetic"])
    assert [e.adversarial for e in free.examples] == [e.adversarial for e in small.examples]
    assert small.summary.mean_queries > free.summary.mean_queries  # type: ignore[operator]


class Clock:
    """Passes one second whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


def test_time_runs_out(
    model: BertForSequenceClassification, single: Dataset, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = run(model, single, ATTACKS["genetic"], batch_size=4)
    clock = Clock()
    monkeypatch.setattr("rosewood.attacks.runner.job.time", clock)
    monkeypatch.setattr("rosewood.attacks.runner.execute.time", clock)
    cut = run(model, single, ATTACKS["genetic"], batch_size=4, max_seconds=60)
    summary, counts = cut.summary, cut.summary.counts
    assert summary.left_out > 0 and counts["out_of_time"] > 0 and counts["broken"] > 0
    assert summary.examples + summary.left_out == 30 and sum(counts.values()) == summary.examples
    known = {example.row: example for example in free.examples}
    for example in cut.examples:
        if example.status != "out_of_time":
            assert example.adversarial == known[example.row].adversarial
        else:
            assert 1 <= example.queries <= known[example.row].queries
    truth = [known[example.row].status == "robust" for example in cut.examples]
    assert summary.robust_accuracy <= sum(truth) / len(truth) <= summary.robust_accuracy_at_most
    low, high = summary.robust_interval
    assert low < summary.robust_accuracy and summary.robust_accuracy_at_most < high
    rows = [example.row for example in cut.examples]
    assert rows == sorted(rows) != list(range(len(rows)))  # a random part, not the first rows
    with pytest.raises(RunError, match=r"no example was scored within max_seconds 0\.5"):
        run(model, single, ATTACKS["genetic"], max_seconds=0.5)


@dataclass(frozen=True)
class Shouting(Attack):
    """Probes every word in capitals, then stands by the last one only."""

    def search(self, target: Target) -> Search:
        candidates = [replaced(target.words, at, "zzz") for at in range(len(target.words))]
        scores = yield probe(candidates)
        assert len(scores) == len(candidates) and not target.clean.wrong.any()
        yield move(candidates[-1:])


def test_a_probe_is_no_success_and_a_move_is(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    result = run(model, single, Shouting())
    for example in result.examples:
        assert [change.position for change in example.changes] in ([], [example.words - 1])
    assert result.summary.counts["broken"] > 0 and result.summary.counts["robust"] > 0


def test_words_past_the_maximum_length_are_left_alone(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, run: Run
) -> None:
    data = Dataset.from_dict({"text": ["a b c d e f g h"], "label": [0]})
    result = run(model, data, Typos(), max_length=5)  # [CLS] a b c [SEP]
    assert result.examples[0].words == 3
    pair = Dataset.from_dict({"one": ["a b c d e f"], "two": ["g h i j"], "label": [0]})
    assert run(model, pair, Typos(), max_length=9).examples[0].words == 3  # the longer text is cut first: 3 and 3


def test_special_tokens_are_no_words(model: BertForSequenceClassification, run: Run) -> None:
    data = Dataset.from_dict({"text": ["[SEP] good [UNK] film"], "label": [0]})
    assert run(model, data, Typos()).examples[0].words == 2


def test_the_model_is_left_as_it_was(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    model.train()
    model.bert.eval()
    before = [module.training for module in model.modules()]
    run(model, single, Pwws())
    assert [module.training for module in model.modules()] == before


def test_labels_go_by_their_names(tokenizer: PreTrainedTokenizerFast, single: Dataset, run: Run) -> None:
    names = Features({"text": Value("string"), "label": ClassLabel(names=["negative", "positive"])})
    straight = run(tiny_classifier(("negative", "positive")), single.cast(names), Pwws())
    flipped = single.remove_columns("label").add_column("label", [1 - label for label in single["label"]])
    crossed = run(tiny_classifier(("positive", "negative")), flipped.cast(names), Pwws())
    assert [e.adversarial for e in straight.examples] == [e.adversarial for e in crossed.examples]
    assert [1 - e.label for e in straight.examples] == [e.label for e in crossed.examples]
    with pytest.raises(RunError, match="the model's labels are bad, good, the task's are negative, positive"):
        run(tiny_classifier(("bad", "good")), single.cast(names), Pwws())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lexicon": None}, r"pwws replaces words by those of a lexicon: pass one, such as lexicon=Lexicon"),
        ({"field": "txt"}, r"there is no text 'txt' to attack: did you mean text\?"),
        ({"max_queries": 0}, "max_queries: input should be greater than or equal to 1, got 0"),
        ({"max_seconds": 0.0}, "max_seconds: input should be greater than 0, got 0"),
        ({"max_seconds": float("nan")}, "max_seconds: input should be a finite number, got nan"),
        ({"max_seconds": float("inf")}, "max_seconds: input should be a finite number, got inf"),
        ({"batch_size": 0}, "batch_size: input should be greater than or equal to 1, got 0"),
        ({"max_length": 1000}, "max_length 1000 is more than the model's 128 tokens"),
    ],
)
def test_bad_settings_are_refused_before_any_work(
    model: BertForSequenceClassification, single: Dataset, run: Run, settings: dict[str, Any], message: str
) -> None:
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    with pytest.raises(RunError, match=message):
        run(model, single, "pwws", **settings)


def test_missing_resources_are_named(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    with pytest.raises(RunError, match=r"genetic keeps to substitutes that a language model allows.*min_log_ratio"):
        run(model, single, "genetic")
    with pytest.raises(RunError, match=r"textfooler bounds the similarity of sentences: pass an encoder"):
        run(model, single, "textfooler")
    with pytest.raises(RunError, match=r"bert_attack takes words from a masked language model: pass one.*--masked-lm"):
        run(model, single, "bert-attack", masked_lm=None)
    with pytest.raises(RunError, match=r"bae takes words from a masked language model(.|\n)*bae bounds the similarity"):
        run(model, single, "bae", masked_lm=None)
    with pytest.raises(RunError, match=r"keep the part of speech: pass a tagger"):
        run(model, single, TextFooler(min_similarity=None, same_part_of_speech=True))
    with pytest.raises(RecipeError, match=r"unknown attack 'pwwz': did you mean pwws\?"):
        run(model, single, "pwwz")
    with pytest.raises(RunError, match=r"a name or an attack such as Pwws\(\), got <class .*Pwws'>"):
        run(model, single, Pwws)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a"]}, "expected a column 'label' or 'labels', and the columns are text"),
        ({"label": [0], "labels": [0], "text": ["a"]}, "there are columns 'label' and 'labels'"),
        ({"one": ["a"], "two": ["b"], "three": ["c"], "label": [0]}, "which columns hold the texts"),
        ({"text": [], "label": []}, "the data have no rows"),
        ({"text": ["a"], "label": [2]}, "expected labels from 0 to 1, got 2"),
        ({"text": ["a"], "label": [-1]}, "expected labels from 0 to 1, got -1"),
        ({"text": ["a", None], "label": [0, 1]}, "`text` must hold texts; row 1 is None"),
        ({"one": ["a"], "two": [7], "label": [0]}, "`two` must hold texts; row 0 is 7"),
    ],
)
def test_bad_data_are_refused(
    model: BertForSequenceClassification, run: Run, columns: dict[str, list], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        run(model, Dataset.from_dict(columns), "pwws")


def test_a_tokenizer_or_model_that_cannot_pad_is_refused(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, single: Dataset
) -> None:
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    model.config.pad_token_id = None
    with pytest.raises(RunError, match=r"no padding token.*tokenizer\.pad_token = tokenizer\.eos_token"):
        attack(model, tokenizer, single, "typos")
    model.config.pad_token_id, unpadded = 0, deepcopy(tokenizer)
    unpadded.pad_token = None
    with pytest.raises(RunError, match="no padding token"):
        attack(model, unpadded, single, "typos")


def test_texts_of_every_kind(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, run: Run
) -> None:
    word = next(iter(ENTRIES))
    texts = ["", "  ", "...", "\N{SNOWMAN}\N{GRINNING FACE}", f"{word} " * 500, f"<b>{word}</b>\n\t{word}\r\n"]
    texts += [f"cafe\u0301 {word}", f"电影 {word}", f"\x00{word}", f"[SEP]{word}[CLS]", f"x[SEP]{word}"]
    data = Dataset.from_dict({"text": texts, "label": predicted(model, tokenizer, [text[:90] for text in texts])})
    for method in [*ATTACKS.values(), Pwws(split_at_spaces=True)]:
        examples = run(model, data, method).examples
        assert [example.texts["text"] for example in examples] == texts
        assert [example.words for example in examples[:3]] == [0, 0, int(method.word_pattern() != WORD)]
        assert all(example.queries == 1 for example in examples[:3])
        assert any(example.status == "broken" for example in examples[4:])
        for example in examples:
            kept = [token for token in ("[SEP]", "[CLS]") if token in example.texts["text"]]
            assert all(token in (example.adversarial or example.texts["text"]) for token in kept)


def test_a_result_survives_the_disk(
    model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Any
) -> None:
    result = run(model, single, Pwws(exact_case=True), lexicon=Lexicon.of(ENTRIES, "wordnet"))
    result.save(tmp_path / "attack.json")
    assert AttackResult.load(tmp_path / "attack.json") == result
    assert result.settings["exact_case"] is True and result.lexicon == Lexicon.of(ENTRIES).fingerprint
    assert result.lexicon_name == "wordnet"


@pytest.mark.slow
@each
def test_batch_size_changes_nothing_on_a_real_model(method: Attack, masked_lm: MaskedLM) -> None:
    """MiniLM with a random head, in float32: its scores differ in the sixth decimal between batches."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from rosewood.data.embedded import embedded_model, embedded_reviews

    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(embedded_model(), num_labels=2)
    tokenizer = AutoTokenizer.from_pretrained(embedded_model())
    texts = sorted(embedded_reviews("test").columns["text"], key=len)[40:52]
    words = sorted({word for text in texts for word in text.split()})
    # Every fourth substitute is unknown to the tokenizer, so that there are exact ties.
    found = Lexicon.of({word: [words[(i + 7) % len(words)], "☃", "☂"] for i, word in enumerate(words)})
    data = Dataset.from_dict({"text": texts, "label": [0, 1] * 6})
    results = [
        by_text(
            attack(model, tokenizer, data, method, lexicon=found, masked_lm=masked_lm, batch_size=size, progress=False)
        )
        for size in (1, 64)
    ]
    assert results[0] == results[1]
    assert {"broken", "wrong"} <= {record["status"] for record in results[0].values()}


RUSSIAN = ["этот фильм очень хорош", "скучный и долгий фильм", "war никто не видел"]


def test_texts_that_a_lexicon_does_not_know_are_not_attacked(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, run: Run
) -> None:
    data = Dataset.from_dict({"text": RUSSIAN, "label": predicted(model, tokenizer, RUSSIAN)})
    english = Lexicon.of({"war": ["strife"]})
    summary = run(model, data, Pwws(), lexicon=english).summary
    assert summary.changeable_words == pytest.approx(1 / 12) and not summary.attacked
    assert run(model, data, Pwws(), lexicon=english, min_changeable=0.05).summary.attacked
    russian = Lexicon.of({"фильм": ["кино"], "скучный": ["нудный"]})
    known = run(model, data, Pwws(), lexicon=russian)
    assert [example.changeable for example in known.examples] == [1, 2, 0] and known.summary.attacked
    typos = run(model, data, Typos())
    assert [example.changeable for example in typos.examples] == [4, 3, 3] and typos.summary.attacked
    with pytest.raises(RunError, match="min_changeable: input should be less than or equal to 1, got 2"):
        run(model, data, Pwws(), min_changeable=2)


def test_another_share_needs_no_new_search(
    model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Any
) -> None:
    first = run(model, single, Pwws(), folder=tmp_path)
    assert first.summary.attacked and first.summary.changeable_words is not None
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    strict = run(model, single, Pwws(), folder=tmp_path, min_changeable=1.0)
    assert not strict.summary.attacked and strict.examples == first.examples
    assert load_attack(tmp_path).summary == strict.summary

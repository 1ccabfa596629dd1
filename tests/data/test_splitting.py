"""Splits depend on the texts and the seed alone, keep the label shares and never share a text."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rosewood.data.splitting import carve, carve_groups, distinct, spread, text_keys

ROWS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=60)


def keys_of(numbers: list[int]) -> list[tuple[str, ...]]:
    return [(f"text {number}",) for number in numbers]


def test_keys_ignore_case_and_white_space() -> None:
    assert text_keys([["A  film\t", "b"], ["Ünd", "c"]]) == [("a film", "ünd"), ("b", "c")]


@given(ROWS)
def test_distinct_keeps_one_row_of_a_text_and_none_of_a_conflict(rows: list[tuple[int, int]]) -> None:
    numbers, labels = zip(*rows, strict=True)
    kept = distinct(keys_of(list(numbers)), labels)
    by_number = {number: {label for n, label in rows if n == number} for number in numbers}
    assert {numbers[i] for i in kept} == {number for number, found in by_number.items() if len(found) == 1}
    assert len(kept) == len({numbers[i] for i in kept})
    assert all(numbers.index(numbers[i]) == i for i in kept)


def test_spread_keeps_the_label_shares_in_every_beginning() -> None:
    labels = [0] * 300 + [1] * 100
    order = spread(keys_of(list(range(400))), labels, seed=0)
    assert sorted(order) == list(range(400))
    for size in range(4, 401, 4):
        assert Counter(labels[i] for i in order[:size])[0] in range(size * 3 // 4 - 1, size * 3 // 4 + 2)


def test_split_does_not_depend_on_the_row_order() -> None:
    numbers = list(range(100))
    labels = [number % 2 for number in numbers]
    chosen = {numbers[i] for i in carve(keys_of(numbers), labels, 0.2, seed=3)}
    back, back_labels = numbers[::-1], labels[::-1]
    assert chosen == {back[i] for i in carve(keys_of(back), back_labels, 0.2, seed=3)}
    assert chosen != {numbers[i] for i in carve(keys_of(numbers), labels, 0.2, seed=4)}


def test_carved_rows_are_fixed_for_all_time() -> None:
    assert carve(keys_of(list(range(20))), [0, 1] * 10, 0.2, seed=0) == [1, 6, 12, 19]


def test_groups_stay_whole_and_reach_the_share() -> None:
    groups = keys_of([number // 3 for number in range(90)])
    taken = set(carve_groups(groups, 0.1, seed=0))
    assert len(taken) == 9
    assert not {groups[i] for i in taken} & {groups[i] for i in range(90) if i not in taken}

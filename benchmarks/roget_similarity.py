"""How similar must two words of Roget be? As similar as makes WordNet confirm their pairs as often as others' pairs.

    python benchmarks/roget_similarity.py --data-dir DIR

For each bound on the similarity: the pairs of lemmas that pass, and the share of them that are synonyms in WordNet and
neighbours after counter-fitting. Only words that all three know count. Needs rosewood[dev,lexicon] and WordNet.
"""

from __future__ import annotations

import argparse

import roget

from rosewood import Lexicon
from rosewood.words import wordnet
from rosewood.words.language_models import SentenceEncoder
from rosewood.words.lexicon import antonyms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", required=True, help="the folder with wordsub/counterfitted_neighbors.json")
    data_dir = parser.parse_args().data_dir

    neighbours = Lexicon.counter_fitted(data_dir)
    counter_fitted = set(neighbours.pairs())
    found = wordnet.english_synonyms(wordnet.find_wordnet())
    in_wordnet = {frozenset((lemma.word, each.word)) for lemma, others in found.items() for each in others}
    opposites = antonyms(data_dir)
    similar = {
        frozenset((lemma.word, each.word)): -each.rank
        for lemma, others in roget.synonyms(roget.roget_page(), SentenceEncoder.load(), min_similarity=0.3).items()
        for each in others
    }
    known = {lemma.word for lemma in found} & set(neighbours.entries) & {word for pair in similar for word in pair}
    common = [pair for pair in counter_fitted if pair <= known]
    share = sum(pair in in_wordnet for pair in common) / len(common)
    print(f"{len(known)} words known to all; {len(common)} counter-fitted pairs of them, {share:.1%} in WordNet")
    print("bound   pairs  of known words  in WordNet  counter-fitted  antonyms")
    for hundredths in range(30, 71, 4):
        pairs = [pair for pair, similarity in similar.items() if similarity >= hundredths / 100]
        row(hundredths / 100, pairs, [pair for pair in pairs if pair <= known], in_wordnet, counter_fitted, opposites)
    pairs = [pair for pair, similarity in similar.items() if similarity >= roget.MIN_SIMILARITY]
    row(roget.MIN_SIMILARITY, pairs, [p for p in pairs if p <= known], in_wordnet, counter_fitted, opposites)


def row(bound: float, pairs: list, shared: list, in_wordnet: set, counter_fitted: set, opposites: frozenset) -> None:
    confirmed, near = (sum(pair in other for pair in shared) / len(shared) for other in (in_wordnet, counter_fitted))
    wrong = sum(pair in opposites for pair in pairs) / len(pairs)
    print(f"{bound:5.2f} {len(pairs):7} {len(shared):15} {confirmed:11.1%} {near:15.1%} {wrong:9.2%}")


if __name__ == "__main__":
    main()

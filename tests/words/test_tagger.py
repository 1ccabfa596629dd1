"""Parts of speech, without a download."""

import pickle

import pytest

from rosewood.words.constraints import EnglishTagger

pytest.importorskip("textblob", reason="needs rosewood[lexicon]")


def test_words_have_their_part_of_speech_in_the_sentence() -> None:
    tag = EnglishTagger.load()
    assert tag(["The", "films", "are", "very", "funny"]) == ["DET", "NOUN", "VERB", "ADV", "ADJ"]
    assert tag(["They", "quickly", "made", "two", "films"]) == ["PRON", "ADV", "VERB", "NUM", "NOUN"]


def test_any_words_get_one_tag_each() -> None:
    tag = EnglishTagger.load()
    for words in ([], [""], ["two words", "", "don't", "x-y", "\u200b", "!"], ["a"] * 300):
        assert len(tag(words)) == len(words)


def test_it_can_be_sent_to_another_process() -> None:
    tag = EnglishTagger.load()
    assert pickle.loads(pickle.dumps(tag)).fingerprint == tag.fingerprint and "textblob" in tag.fingerprint

"""Words from a masked language model: which ones they are, in which order, and from which models."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForMaskedLM

from rosewood.errors import RunError
from rosewood.words.language_models import MaskedLM
from rosewood.words.text import Words
from tiny_text import save_tiny_checkpoint, tiny_masked_lm

KNOWN = ["bad", "bed", "fine", "movie", "it's", "10", "x1", "mov_ie", "a-b"]


@pytest.fixture(scope="module")
def masked_lm() -> MaskedLM:
    return tiny_masked_lm(KNOWN)


def test_whole_words_and_pieces_are_distinguished(masked_lm: MaskedLM) -> None:
    known = masked_lm._vocabulary
    words = {text for text, whole in zip(known.texts, known.words, strict=True) if whole}
    pieces = [text for text, piece in zip(known.texts, known.pieces, strict=True) if piece]
    assert words == {*"abcdefghijklmnopqrstuvwxyz", "film", "good", *KNOWN} - {"mov_ie"}
    assert pieces == list("abcdefghijklmnopqrstuvwxyz")


def byte_level() -> MaskedLM:
    """A RoBERTa whose tokenizer has a space within its tokens."""
    special = ["<s>", "<pad>", "</s>", "<mask>"]
    tokens = [*special, "Ġ", *"abdegimov", "Ġa", "Ġb", "Ġg", "ad", "od", "ood", "Ġbad", "Ġgood", "bad"]
    pieces = {token: number for number, token in enumerate(tokens)}
    merges = [("Ġ", "a"), ("Ġ", "b"), ("Ġ", "g"), ("a", "d"), ("o", "od"), ("Ġb", "ad"), ("Ġg", "ood"), ("b", "ad")]
    backend = Tokenizer(models.BPE(pieces, [("o", "d"), *merges]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", mask_token="<mask>",
        model_max_length=40,
    )  # fmt: skip
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=len(pieces), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=64,
    )  # fmt: skip
    return MaskedLM(RobertaForMaskedLM(config), tokenizer)


def test_byte_level_tokenizers_have_words_with_a_space_before() -> None:
    found = byte_level()
    assert set(found.fill([("a good", "movie"), ("", "bad")], 50)[0]) == {"a", "b", "g", "bad", "good"}
    reading = found.read(Words.split("bad bad agood"), 3)
    assert [len(own) for own in reading._of_words] == [1, 1, 3]  # the first word has the token of any other
    assert [len(reading.substitutes(at, 5)) for at in range(3)] == [3, 3, 5]


def test_a_word_alone_is_filled_as_the_model_says(masked_lm: MaskedLM) -> None:
    tokenizer, model = masked_lm.tokenizer, masked_lm.model
    batch = tokenizer("a good [MASK], it", return_tensors="pt")
    with torch.no_grad():
        logits = model(**batch).logits[0, batch["input_ids"][0].tolist().index(tokenizer.mask_token_id)]
    best = [tokenizer.decode([i]) for i in logits.argsort(descending=True).tolist()]
    expected = [word for word in best if not word.startswith("##") and word.replace("'", "").replace("-", "").isalnum()]
    assert masked_lm.fill([("a good ", ", it"), ("", "x")], 4)[0] == [w.replace(" ", "") for w in expected[:4]]


def test_texts_longer_than_the_model_are_read_in_parts(masked_lm: MaskedLM) -> None:
    text = Words.split("good film " * 100)
    reading = masked_lm.read(text, 3)
    assert all(len(reading.substitutes(at, 4)) == 3 for at in (0, 99, 199))
    alone = masked_lm.read(Words.split(" ".join(text.words[126:])), 3)
    assert reading.substitutes(130, 4) == alone.substitutes(4, 4)
    ((left, right),) = [("good " * 150, "film " * 150)]
    assert masked_lm.fill([(left, right)], 5) == masked_lm.fill([("good " * 63, "film " * 62)], 5)


def test_a_model_from_a_folder(masked_lm: MaskedLM, tmp_path: Path) -> None:
    masked_lm.model.save_pretrained(tmp_path / "lm")
    masked_lm.tokenizer.save_pretrained(tmp_path / "lm")
    loaded = MaskedLM.load(str(tmp_path / "lm"))
    assert loaded.fingerprint == masked_lm.fingerprint != tiny_masked_lm(KNOWN, seed=1).fingerprint
    assert loaded.fill([("a", "film")], 5) == masked_lm.fill([("a", "film")], 5)


def test_what_is_no_masked_language_model_is_refused(masked_lm: MaskedLM, tmp_path: Path) -> None:
    classifier = save_tiny_checkpoint(tmp_path / "classifier")
    with pytest.raises(RunError, match=r"classifier is not a masked language model: it has no weights for cls\."):
        MaskedLM.load(str(classifier))
    pickled = tmp_path / "pickled"
    masked_lm.tokenizer.save_pretrained(pickled)
    masked_lm.model.config.save_pretrained(pickled)
    torch.save(masked_lm.model.state_dict(), pickled / "pytorch_model.bin")
    with pytest.raises(RunError, match=r"(?s)cannot load a masked language model from .*pickled.*model\.safetensors"):
        MaskedLM.load(str(pickled))
    with pytest.raises(RunError, match="cannot load a masked language model from /no/where"):
        MaskedLM.load("/no/where")

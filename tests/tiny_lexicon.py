"""A dictionary of a few words, a WordNet of a few synsets and a page of Roget's, all in the format of the real ones."""

from pathlib import Path
from typing import ClassVar


class Dictionary:
    """The part of lemminflect that is used."""

    __version__ = "0"
    known: ClassVar = {
        ("film", "NOUN"): {"NN": ("film",), "NNS": ("films", "film")},
        ("film", "VERB"): {"VB": ("film",), "VBD": ("filmed",)},
        ("movie", "NOUN"): {"NN": ("movie",), "NNS": ("movies",)},
        ("flick", "NOUN"): {"NN": ("flick",)},
        ("sheep", "NOUN"): {"NN": ("sheep",), "NNS": ("sheep",)},
        ("flatfoot", "NOUN"): {"NN": ("flatfoot",), "NNS": ("flat feet",)},
        ("shoot", "VERB"): {"VB": ("shoot",), "VBD": ("shot",)},
        ("take", "VERB"): {"VB": ("take",)},
        ("learn", "VERB"): {"VB": ("learn",), "VBD": ("learned", "learnt")},
        ("old", "ADJ"): {"JJ": ("old",), "JJR": ("older",)},
        ("ancient", "ADJ"): {"JJ": ("ancient",)},
        ("young", "ADJ"): {"JJ": ("young",), "JJR": ("younger",)},
        ("he", "NOUN"): {},
    }

    def getAllInflections(self, lemma: str, upos: str) -> dict[str, tuple[str, ...]]:  # noqa: N802
        return self.known.get((lemma, upos), {})

    def getAllLemmas(self, word: str, upos: str) -> dict[str, tuple[str, ...]]:  # noqa: N802
        found = tuple(
            lemma
            for (lemma, part), forms in self.known.items()
            if part == upos and (word == lemma or any(word in spellings for spellings in forms.values()))
        )
        return {upos: found} if found else {}


LICENCE = "  1 The licence comes first, every line of it indented.  \n"
WORDNET = {
    "index.noun": "film n 3 2 @ ~ 3 2 00000010 00000020 00000030  \nflick n 1 1 @ 1 0 00000010  \n"
    "he n 1 1 @ 1 0 00000040  \nmotion_picture n 1 1 @ 1 0 00000010  \nmovie n 1 1 @ 1 1 00000010  \n",
    "data.noun": '00000010 10 n 04 movie 0 film 0 motion_picture 0 flick 2 001 @ 00000099 n 0000 | a show; "a film"  \n'
    "00000020 06 n 02 film 1 plastic_film 0 000 | a thin sheet  \n"
    "00000030 06 n 03 Kodak 0 film 2 movie 1 000 | a third sense  \n"
    "00000040 27 n 03 helium 0 He 0 atomic_number_2 0 000 | a gas  \n",
    "index.verb": "film v 1 0 1 0 00000050  \nshoot v 1 0 1 0 00000050  \ntake v 1 0 1 0 00000050  \n",
    "data.verb": "00000050 36 v 03 film 0 shoot 0 take 0 000 01 + 08 00 | make a film  \n",
    "index.adj": "old a 1 1 & 1 0 00000060  \n",
    "data.adj": "00000060 00 s 02 old(p) 0 ancient(a) 0 001 & 00000061 a 0000 | of long ago  \n",
    "index.adv": "",
    "data.adv": "",
}


def write_wordnet(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in WORDNET.items():
        (folder / name).write_text(LICENCE + text, encoding="utf-8")
    return folder


PAGE = """<html><pre>
1. Before the mark -- N. nothing, naught.

***START OF THE PROJECT***

SECTION II.

2. TIME IN GENERAL

3. Picture [An image; of sorts] -- N. film, movie &amp;c (show) 599; motion picture,
flick; cinema [Fr.], [of animals] sheep; he, Sanskrit, daguerre &amp;c 9 [Obs.].
     flatfoot.
V. film, shoot; take
&amp;c 785.
Phr. learn, take.

    3a Age --
    Adj. old, filmed; ancient &amp;c adj.; young.
\t older; time-honored. Int. alas.

***END OF THE PROJECT***

4. After the mark -- N. nothing, naught.
"""

"""Front ends one after the other, then any defence: the text that one writes is what the next reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

from pydantic import Field

from rosewood.defences.corrected import Corrected
from rosewood.defences.encoded import Encoded
from rosewood.errors import RunError
from rosewood.models.defended import Defence, Floats, FrontEnd, Learnt, Material, Shield
from rosewood.models.scoring import Row, Scorer
from rosewood.recipe import part_of

Part = Annotated[Defence, part_of("defence")]


@dataclass(frozen=True)
class Chain(Defence):
    """Defences one after the other, such as corrected+encoded; all but the last write texts."""

    of: Annotated[tuple[Part, ...], Field(min_length=2)] = (Corrected(), Encoded())

    @property
    def reads_all(self) -> bool:
        return any(part.reads_all for part in self.of)

    def needs(self) -> dict[str, str]:
        return {field: why for part in self.of for field, why in part.needs().items()}

    def learn(self, base: Scorer, material: Material) -> Learnt:
        """What each part learns from the texts as the parts before it write them."""
        learnt = []
        for part in self.of:
            learnt.append(part.learn(base, material))
            shield = part.start(learnt[-1])
            if isinstance(shield, FrontEnd):
                material = replace(material, texts=shield.rows(material.texts))
            elif part is not self.of[-1]:
                raise RunError(f"{part.name} writes no text that another defence could read: put it last")
        return {"parts": learnt}

    def start(self, learnt: Learnt) -> Shield:
        return Chained([part.start(own) for part, own in zip(self.of, learnt["parts"], strict=True)])

    def refuses(self) -> bool:
        return self.of[-1].refuses()

    def forwards(self) -> float:
        return self.of[-1].forwards()

    def redrawn(self, seed: int, draw: int) -> Self:
        others = tuple(part.redrawn(seed, draw) for part in self.of)
        same = all(other is part for other, part in zip(others, self.of, strict=True))
        return self if same else replace(self, of=others)


class Chained(Shield):
    """Passes texts from one front end to the next, and leaves the answer to the last."""

    def __init__(self, shields: Sequence[Shield]) -> None:
        *front, self.last = shields
        self.front = [shield for shield in front if isinstance(shield, FrontEnd)]

    def written(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The texts as the last of the defences reads them."""
        for shield in self.front:
            rows = shield.rows(rows)
        return rows

    def logits(self, rows: Sequence[Row], base: Scorer) -> Floats:
        return self.last.logits(self.written(rows), base)

"""Every parameter moves in every step."""

from __future__ import annotations

from dataclasses import dataclass

from rosewood.protocol import Selection


@dataclass(frozen=True)
class Everything(Selection):
    """Ordinary fine-tuning: no mask."""

    makes_masks = False

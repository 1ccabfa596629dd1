"""What can be watched while a model trains, one file each; `WATCHES` has them by name."""

from rosewood.training.watch import Watch
from rosewood.training.watches.drift import DriftWatch
from rosewood.training.watches.inconsistency import InconsistencyWatch
from rosewood.training.watches.masks import MaskWatch

WATCHES: dict[str, type[Watch]] = {watch.name: watch for watch in (MaskWatch, DriftWatch, InconsistencyWatch)}

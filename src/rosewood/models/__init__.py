"""Models: opened by name, folder or run, scored on texts, averaged, and reached into.

These names can be imported from here: `from rosewood.models import load_classifier`.
"""

from rosewood.config.registry import on_first_use

_HOMES = {
    "Defended": "rosewood.models.defended",
    "candidate_names": "rosewood.models.parameters",
    "load_classifier": "rosewood.models.open",
    "open_run": "rosewood.models.open",
}
__all__ = list(_HOMES)

__getattr__, __dir__ = on_first_use(__name__, _HOMES)

"""Reports: the page, its sections and figures, and the model card.

These names can be imported from here: `from rosewood.report import write_report`.
"""

from rosewood.config.registry import on_first_use

_HOMES = {
    "load_runs": "rosewood.comparison.runs",
    "subject_of": "rosewood.report.subject",
    "write_report": "rosewood.report.page",
}
__all__ = list(_HOMES)

__getattr__, __dir__ = on_first_use(__name__, _HOMES)

"""The errors a user can meet: each says what was expected, what came, and what to do."""


class RosewoodError(Exception):
    """Base of all errors that Rosewood raises on purpose; the command line prints them without a traceback."""


class RecipeError(RosewoodError):
    """A recipe that cannot be built, or that makes no sense with this model."""


class DataError(RosewoodError):
    """Data that cannot be used; names file, row, what was expected and what came."""


class AbsentError(DataError):
    """Data that are not available, though nothing is wrong with them: no such file, no package, no Hub."""


class RunError(RosewoodError):
    """A run directory that cannot be written, read or continued."""


class ExperimentError(RosewoodError):
    """An experiment file that cannot be run."""


def closest(name: str, known: list[str]) -> str:
    """A sentence ending that suggests the nearest known names, for use after "unknown ...: NAME"."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else ""
    if len(known) > 25:
        return hint or "there is none like it."
    names = ", ".join(sorted(known))
    return f"{hint} Known: {names}." if hint else f"known: {names}."

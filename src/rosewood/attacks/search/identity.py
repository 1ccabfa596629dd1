"""Names for what an attack was given: equal names mean equal results."""

from __future__ import annotations


def of_resource(thing: object) -> str | None:
    """The fingerprint of a lexicon, language model, tagger or encoder; without one, what kind of thing it is."""
    if thing is None:
        return None
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return getattr(thing, "fingerprint", f"{kind.__module__}.{kind.__qualname__}")

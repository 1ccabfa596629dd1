"""Reads a split from the Hugging Face Hub into a table."""

import datasets

from rosewood.data.table import Table
from rosewood.data.tasks import HubSource
from rosewood.errors import AbsentError


def read_hub(source: HubSource, otherwise: str) -> Table:
    """Load one split; `otherwise` tells the user what else to do when the Hub does not answer."""
    name = f"{source.dataset} ({', '.join(filter(None, [source.config, source.split]))})"
    revision = {} if source.revision is None else {"revision": source.revision}
    try:
        loaded = datasets.load_dataset(source.dataset, source.config, split=source.split, **revision)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).strip().split("\n")[0]
        raise AbsentError(f"{name} cannot be loaded from the Hugging Face Hub: {reason}; {otherwise}") from None
    if any("." in column for column in source.columns):
        loaded = loaded.flatten()  # `translation.en` is a column then
    return Table(name, loaded.to_dict(), range(1, len(loaded) + 1), unit="row")

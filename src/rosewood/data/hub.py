"""Reads a split from the Hugging Face Hub into a table."""

import datasets

from rosewood.data.table import Table
from rosewood.data.tasks import HubSource
from rosewood.errors import DataError


def read_hub(source: HubSource, otherwise: str) -> Table:
    """Load one split; `otherwise` tells the user what else to do when the Hub does not answer."""
    name = f"{source.dataset} ({', '.join(filter(None, [source.config, source.split]))})"
    try:
        loaded = datasets.load_dataset(source.dataset, source.config, split=source.split)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).strip().split("\n")[0]
        raise DataError(f"{name} cannot be loaded from the Hugging Face Hub: {reason}; {otherwise}") from None
    return Table(name, loaded.to_dict(), range(1, len(loaded) + 1), unit="row")

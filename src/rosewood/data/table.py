"""A table as it was read: columns, and where each row stands, so that an error can point at it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rosewood.errors import DataError


@dataclass(frozen=True)
class Table:
    """Columns of equal length; `places[i]` is the 1-based line (or row, or item) at which row i starts."""

    name: str
    columns: dict[str, list[Any]]
    places: Sequence[int]
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.places)

    def at(self, index: int) -> str:
        """Where row `index` stands, in the words of an error message."""
        return f"{self.name}, {self.unit} {self.places[index]}"

    def take(self, indices: Sequence[int]) -> "Table":
        """The rows `indices`, in that order."""
        columns = {name: [values[i] for i in indices] for name, values in self.columns.items()}
        return replace(self, columns=columns, places=[self.places[i] for i in indices])

    def problem(self, rows: Sequence[int], message: str) -> DataError:
        """An error about the first of `rows` that says how many others share it."""
        others = len(rows) - 1
        more = f" ({others} more {'row has' if others == 1 else 'rows have'} the same problem)" if others else ""
        return DataError(f"{self.at(rows[0])}: {message}{more}")

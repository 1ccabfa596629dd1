"""Many tensors in one flat buffer, so that one kernel serves a whole model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor


class Flat(NamedTuple):
    """A buffer `(elements,)` and, as views of it, one piece in the shape of each of some tensors."""

    whole: Tensor
    pieces: list[Tensor]


def flat_like(tensors: Sequence[Tensor]) -> Flat:
    """Zeros for every element of the tensors, of their widest dtype, but at least float32."""
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
    sizes = [tensor.numel() for tensor in tensors]
    whole = torch.zeros(sum(sizes), dtype=dtype, device=tensors[0].device)
    pieces = zip(whole.split(sizes), tensors, strict=True)
    return Flat(whole, [piece.view(tensor.shape) for piece, tensor in pieces])

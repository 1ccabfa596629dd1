"""One buffer behind many tensors."""

import torch

from rosewood.tensors.shards import flat_like


def test_pieces_are_views_in_order_and_shape() -> None:
    tensors = [torch.ones(2, 3), torch.ones(()), torch.ones(4)]
    flat = flat_like(tensors)
    flat.whole.copy_(torch.arange(11.0))
    assert [piece.shape for piece in flat.pieces] == [tensor.shape for tensor in tensors]
    assert flat.pieces[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert flat.pieces[1] == 6
    flat.pieces[2].zero_()
    assert flat.whole.tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0]


def test_the_widest_dtype_but_at_least_single_precision() -> None:
    half, double = torch.ones(1, dtype=torch.bfloat16), torch.ones(1, dtype=torch.float64)
    assert flat_like([half]).whole.dtype == torch.float32
    assert flat_like([half, double]).whole.dtype == torch.float64

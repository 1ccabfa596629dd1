"""What the selection of a run let move, step by step, and the ratio by which ROSE's second order chose."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import mean, median

from rosewood.analysis.by_layer import ByLayer, by_layer
from rosewood.watched import SeenMasks, read_seen


def kept_shares(run: str | Path) -> ByLayer:
    """The kept share of each layer: the mean over its tensors, large or small, as ROSE counts them."""
    records = read_seen(run, SeenMasks)
    return by_layer(
        Path(run).name,
        [(seen.step, {layer: mean(shares.values()) for layer, shares in seen.kept.items()}) for seen in records],
    )


def kept_by_tensor(run: str | Path) -> ByLayer:
    """The kept share of each kind of tensor, such as the query's weight: the mean over the layers that have one."""
    records = []
    for seen in read_seen(run, SeenMasks):
        found: dict[str, list[float]] = defaultdict(list)
        for shares in seen.kept.values():
            for tensor, share in shares.items():
                found[tensor].append(share)
        records.append((seen.step, {tensor: mean(shares) for tensor, shares in found.items()}))
    return by_layer(Path(run).name, records)


def second_order_ratios(run: str | Path) -> ByLayer | None:
    """The median over a layer's tensors of (1 - beta1) |g| / |m|; None if the run never read it.

    ROSE-Second keeps the tensors whose ratio is nearest to 1, where the gradient is 1 / (1 - beta1) = 10 times its
    running average m. After the first steps ratios are below 1, so these are the tensors with the largest |g| / |m|.
    """
    found = [(seen.step, seen.second_ratio) for seen in read_seen(run, SeenMasks) if seen.second_ratio is not None]
    if not found:
        return None
    return by_layer(
        Path(run).name,
        [(step, {layer: median(each.values()) for layer, each in ratios.items()}) for step, ratios in found],
    )


def mean_kept(shares: ByLayer) -> dict[str, float]:
    """The mean over the recorded steps of each layer, or kind of tensor."""
    rows = zip(shares.layers, shares.values, strict=True)
    return {layer: mean(value for value in row if value is not None) for layer, row in rows}

"""Numbers in bulk: divergences, draws, ranks, gradients and norms of many tensors, whole or in shards."""

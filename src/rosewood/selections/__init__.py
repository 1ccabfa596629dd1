"""Which parameters may move in a step, one file each."""

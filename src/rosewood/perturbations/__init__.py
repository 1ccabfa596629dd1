"""How the input, or the weights, are disturbed, one file each."""

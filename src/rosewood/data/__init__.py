"""Tasks, where their data come from, and the checks that stop bad data before any training."""

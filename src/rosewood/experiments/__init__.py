"""Grids of runs: recipes x tasks x models x seeds, from one file to one table."""

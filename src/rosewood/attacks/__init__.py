"""Attacks: searches for a few changed words that make a model wrong, one file each."""

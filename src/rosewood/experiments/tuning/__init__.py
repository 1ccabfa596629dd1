"""Searching the settings of a recipe on data held out from training."""

"""Defences: what is put around a classifier that is trained already; one a file."""

"""Analyses: each file computes one thing about runs, as a typed result."""

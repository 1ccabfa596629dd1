"""Hardening: which defence is best for a model and its data, found by measuring within a time budget.

OUTPUT/
  data/          training rows, held-out rows that choose, and the task made of them
  candidates/    one folder each: its run, and how it was measured after every stage
  test/          the start and the winner on test rows
  harden.json    what was planned, measured and decided
  model/ ...     the winner as a run like any other, if it is better
  report.html  README.md
"""

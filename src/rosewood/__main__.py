"""`python -m rosewood`, which is what launchers of several processes start."""

from rosewood.cli import main

main()

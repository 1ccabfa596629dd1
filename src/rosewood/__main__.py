"""`python -m rosewood`, which is what launchers of several processes start."""

from rosewood.cli import main

if __name__ == "__main__":  # processes of `attack --jobs` import this file again
    main()

"""``python -m heldout``: the command line."""

from heldout.cli import main

if __name__ == "__main__":
    main()

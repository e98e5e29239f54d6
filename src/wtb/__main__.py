"""`python -m wtb` is `wtb`."""

from wtb.cli import main

if __name__ == "__main__":
    main(prog_name="wtb")

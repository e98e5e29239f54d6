"""The reference pages of the documentation, made from the command line and the docstrings: `make reference`."""

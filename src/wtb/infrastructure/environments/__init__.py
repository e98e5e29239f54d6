"""Environments: where the functions of nodes run outside the process of their run."""

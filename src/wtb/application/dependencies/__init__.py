"""What a result depends on: the code and values that can be seen, and what a run was observed to read."""

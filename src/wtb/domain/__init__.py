"""The model: values and rules, no I/O; the standard library, and numpy and scipy for statistics."""

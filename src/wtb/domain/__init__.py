"""The model: values and rules without I/O; uses the standard library, and numpy and scipy for statistics."""

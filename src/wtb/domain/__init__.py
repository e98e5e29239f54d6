"""The model: values and rules, no I/O, nothing but the standard library."""

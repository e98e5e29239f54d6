"""Output of the commands: tables, trees, live displays."""

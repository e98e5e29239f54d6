"""Time travel: rollback and redo, forks and edits, comparison and replay."""

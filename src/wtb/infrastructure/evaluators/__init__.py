"""Evaluators: those that come with WTB, and the way to all by their names."""

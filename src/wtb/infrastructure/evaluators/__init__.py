"""Evaluators that come with WTB."""

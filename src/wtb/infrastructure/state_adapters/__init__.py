"""Engines: each drives a workflow one superstep at a time."""

"""Runs: begin one, take it from step to step, record each, and go on after a pause or a crash."""

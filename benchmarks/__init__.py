"""Benchmarks: figures against peers in the same run, never assertions in a test."""

"""The tests, and the services that tests and benchmarks start for themselves."""

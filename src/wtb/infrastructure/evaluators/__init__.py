"""The evaluators that come with WTB, and the lookup of evaluators by name."""

"""Statistics: comparisons, intervals, verdicts and gates. Import its modules late: numpy is slow to load."""

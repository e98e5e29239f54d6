"""Statistics: comparisons of combinations, intervals, verdicts and gates. Import its modules late: numpy takes long."""

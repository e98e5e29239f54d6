"""Storage in memory: the same contract as a database, gone with the process. For tests and throw-away runs."""

"""Storage in a SQL database: SQLite for one machine, Postgres for a team."""

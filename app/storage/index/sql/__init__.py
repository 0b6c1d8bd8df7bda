"""The index in a database: SQLite or Postgres."""

"""The log and the tables made from it, on SQLite and PostgreSQL."""

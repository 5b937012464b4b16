"""Where decisions are kept.

tables.py     the schema, in SQLAlchemy's words; migrate.py brings a database to it (migrations/)
record.py     a receipt as a row
writer.py     the queue between serving and the database, and its thread
sqlite.py     a SQLite file, written through sqlite3

A serving process imports neither SQLAlchemy nor Alembic: both run in a process of their own (`trilemma migrate`).
"""

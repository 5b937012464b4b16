"""Where decisions are kept, and keys, configurations and changes with them.

tables.py      the schema, in SQLAlchemy's words; migrate.py brings a database to it (migrations/), upgrade.py has that done
record.py      a receipt as rows; contents.py its texts, on demand; columns.py what rows there are
writer.py      the queue between serving and the database, and its thread; retention.py deletes what is too old
joining.py     feedback made outcomes of decisions, whichever of them comes first
sqlite.py      a SQLite file, postgres.py a PostgreSQL database, as the writer writes them; urls.py tells which
database.py    either of them, for what asks: queries.py, keys.py, versions.py, audit.py; erasure.py and export.py

A serving process never imports Alembic, which runs in a process of its own (`trilemma migrate`), and SQLAlchemy only when it asks something
(lazily.py).
"""

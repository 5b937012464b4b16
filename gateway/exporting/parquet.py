"""Rows as a Parquet file (extra `parquet`), of the same columns and types whatever stands in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from gateway.store import tables
from gateway.store.queries import Record

_TYPES: Final[Mapping[type[Any], str]] = {
    sa.Text: "string",
    sa.Double: "float64",
    sa.BigInteger: "int64",
    sa.Integer: "int32",
    sa.Boolean: "bool",
    sa.LargeBinary: "binary",
}


class Parquet:
    """A file of a table's rows; each batch is a row group, compressed with zstd. Tags are JSON text."""

    def __init__(self, file: Path, table: str) -> None:
        columns = tables.metadata.tables[table].columns
        self._schema = pa.schema([pa.field(each.name, _type(each), nullable=bool(each.nullable)) for each in columns])
        self._out = pq.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, rows: Sequence[Record]) -> None:
        """Adds the rows."""
        self._out.write_batch(pa.RecordBatch.from_pylist(list(rows), schema=self._schema))

    def close(self) -> None:
        """The file is whole."""
        self._out.close()


def _type(column: sa.Column[Any]) -> pa.DataType:
    return pa.type_for_alias(_TYPES[type(column.type)])

"""What an operator may write for a sql location, and which of it cannot work together.

Reads the URL but connects to nothing. Used by the sql location and by what it finds to be fixed.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import SecretStr, field_validator, model_validator

from etl.config import strict
from etl.locations import engines, tables
from etl.locations.portable import UPSERTING


class Options(strict.Strict):
    """What may be written for a location of kind `sql`."""

    url: SecretStr
    table: str
    mode: Literal["append", "upsert"] = "append"
    key: strict.Names = ()
    create: bool = False
    lineage: bool | None = None
    newest_by: str | None = None

    @field_validator("url")
    @classmethod
    def _url_can_be_used(cls, value: SecretStr) -> SecretStr:
        engines.address(value.get_secret_value())
        return value

    @field_validator("table")
    @classmethod
    def _table_is_not_ours(cls, value: str) -> str:
        if not tables.split_name(value)[1] or tables.split_name(value)[1].startswith("_etl_"):
            raise ValueError(
                f"{value!r} cannot be a table for units: write table or schema.table, not one of _etl_*"
            )
        return value

    @model_validator(mode="after")
    def _upsert_can_tell_rows_and_ages_apart(self) -> Self:
        if self.mode == "append":
            return self
        backend = engines.address(self.url.get_secret_value()).get_backend_name()
        if backend not in UPSERTING:
            raise ValueError(
                f"`mode: upsert` works on {' and '.join(UPSERTING)}, not on {backend}; use `append`"
            )
        if not self.key:
            raise ValueError("`mode: upsert` needs `key`: the columns that make a row the same row")
        if not self.has_lineage and not self.newest_by:
            raise ValueError(
                "`mode: upsert` must tell old from new: write `lineage: true` or `newest_by: COLUMN`"
            )
        return self

    @property
    def has_lineage(self) -> bool:
        """Tell whether source file, generation and line are written beside each unit."""
        return self.create if self.lineage is None else self.lineage

"""The ground the models of a configuration stand on: frozen sections, names, one value or a list of them.

Shapes only. Used by `schema` and its neighbours.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

#: pipeline and location names are folder names, queue names and SQL values.
NAME = re.compile(r"[a-z][a-z0-9_]*")


class Strict(BaseModel):
    """A frozen section in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(one_or_many)]

"""What an operator may write about the installation, as one frozen model: `settings.yaml`.

Only shapes and defaults live here; reading YAML is `reading`'s, and pipelines are `schema`'s.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from etl.config.durations import Duration, Size
from etl.config.following import Callbacks, CatchAll
from etl.config.noticing import Mail, Notices, SiteName
from etl.config.operating import Dashboard, SwitchedDashboard, UrlOrHeartbeat
from etl.config.scheduling import Schedule, SwitchedSchedule
from etl.config.strict import Names, Strict


class Settings(Strict):
    """`settings.yaml`: where the data lies and who works it."""

    data: Path = Path("data")
    redis: SecretStr = SecretStr("embedded")
    workers: int = Field(default=2, ge=1, le=64)
    scan: Duration = Field(default="30s", gt=0)  # type: ignore[assignment]
    #: free disk below which nothing is begun.
    reserve: Size = "1GB"  # type: ignore[assignment]
    #: how long a job in hand may go on when its worker is asked to stop.
    stop_grace: Duration = "60s"  # type: ignore[assignment]
    #: where the SQL history lies; without, in the data folder.
    ledger: SecretStr | None = None
    #: how often the ledger is held against the folders, whatever was heard meanwhile.
    reconcile: Duration = Field(default="10m", gt=0)  # type: ignore[assignment]
    #: the queues that workers of `etl up` and `etl service workers` serve; empty: all that pipelines name.
    queues: Names = ()
    catch_all: CatchAll = CatchAll()
    callbacks: Callbacks = Callbacks()
    #: who is told by mail; without, notices are only logged.
    mail: Mail | None = None
    notices: Notices = Notices()
    #: which installation this is, in the subject of notices: `prod`.
    name: SiteName = ""
    #: where clean puts what it archives; without, in the data folder.
    archive: Path | None = None
    #: how archives are packed; `zst` needs the extra `zst`.
    archive_format: Literal["gz", "zst"] = "gz"
    #: `host:port` at which the supervisor serves Prometheus metrics; without, nowhere.
    metrics: str | None = None
    #: when the archive is made and cleared up every night; None: only when asked for.
    clean: SwitchedSchedule = Schedule(cron="30 2 * * *")
    #: rq-dashboard; None: nowhere.
    dashboard: SwitchedDashboard = Dashboard()
    #: who is told by the supervisor that everything runs.
    heartbeat: UrlOrHeartbeat = None

    @field_validator("data")
    @classmethod
    def _data_is_a_folder_of_its_own(cls, value: Path) -> Path:
        if value == Path():
            raise ValueError("name a folder of its own, for example data")
        return value

    @field_validator("redis")
    @classmethod
    def _redis_is_embedded_or_a_url(cls, value: SecretStr) -> SecretStr:
        if not re.match(r"embedded$|(redis|rediss|unix)://.", value.get_secret_value()):
            raise ValueError("write embedded, or a URL that starts with redis://, rediss:// or unix://")
        return value

    @field_validator("ledger")
    @classmethod
    def _ledger_is_a_database(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not re.match(r"(sqlite|postgresql)(\+\w+)?://.", value.get_secret_value()):
            raise ValueError("write a URL that starts with sqlite:/// or postgresql+psycopg://")
        return value

    @field_validator("metrics")
    @classmethod
    def _metrics_are_at_a_port(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r".+:\d{1,5}", value):
            raise ValueError(f"{value!r} is not host:port; write for example 127.0.0.1:9464")
        return value

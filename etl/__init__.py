"""rq-etl: file-driven ETL jobs on RQ and Redis. A file's folder is its status.

Handlers may raise `etl.Retryable` (try this file again later) or `etl.Final` (fail it as a whole); any other
exception holds back the row it was raised for.
"""

from etl.errors import Final, Retryable

__all__ = ["Final", "Retryable"]

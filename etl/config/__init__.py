"""What the operator wrote: YAML read into frozen models, every mistake reported by file, line and key.

Opens no connection and touches no data folder; imports only yaml and pydantic.
Every room above asks it, mostly through `reading`.
"""

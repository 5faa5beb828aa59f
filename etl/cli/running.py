"""The services that run: what `etl status` shows of them, and where the dashboard is. Imports as little as that."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import click

from etl.cli import common
from etl.config.reading import Config
from etl.files.layout import Layout
from etl.services import records, whereabouts


def facts(config: Config) -> list[dict[str, Any]]:
    """Give the services that run, and the address of one that has one."""
    now = time.time()
    return [
        {
            **asdict(record),
            "uptime": max(0.0, round(now - record.started, 1)),
            "address": whereabouts.of(config.data, record),
        }
        for record in records.living(config.data)
    ]


def show(config: Config, *, json_: bool) -> None:
    """Print the services, and how to get into the dashboard."""
    found = facts(config)
    if json_:
        common.print_json({"services": found, "dashboard": _dashboard(config, found)})
        return
    print_services(found)
    click.echo(_said(_dashboard(config, found)))


def print_services(services: list[dict[str, Any]]) -> None:
    """Print one line for each service."""
    if not services:
        click.echo("no services run: start them with `etl up`")
        return
    elsewhere = any(one["host"] != records.host() for one in services)
    heads = ["service", *(["host"] if elsewhere else []), "process", "up for", "restarts"]
    rows = [
        [
            one["name"],
            *([one["host"]] if elsewhere else []),
            str(one["pid"]),
            common.ago(one["uptime"]),
            one["restarts"],
        ]
        for one in services
    ]
    common.print_table(heads, rows, right=heads[-3:])


def _dashboard(config: Config, services: list[dict[str, Any]]) -> dict[str, Any]:
    from etl.web import auth

    written = config.settings.dashboard
    if written is None:
        return {"off": True, "addresses": []}
    where = "settings.yaml" if written.password else str(auth.password_path(Layout(config.data)))
    addresses = [one["address"] for one in services if one["address"]]
    return {"off": False, "addresses": addresses, "user": auth.USER, "password_in": where}


def _said(dashboard: dict[str, Any]) -> str:
    if dashboard["off"]:
        return "dashboard: off in settings.yaml"
    if not dashboard["addresses"]:
        return "dashboard: does not run; it is started by `etl up`"
    lines = [f"dashboard: {address}" for address in dashboard["addresses"]]
    return "\n".join([*lines, f"  user {dashboard['user']}, its password is in {dashboard['password_in']}"])

"""`etl status`: what lies where. Typed often, so it imports little."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import click

from etl.cli import common, in_work, one, running
from etl.config.reading import Config
from etl.files import away, survey
from etl.files import layout as layouts
from etl.files.notes import SourceNote
from etl.model import Place, Status
from etl.services import history, unserved
from etl.stages import pauses


@click.command("status")
@click.argument("pipeline", required=False, metavar="[PIPELINE | ID]")
@click.option("--watch", is_flag=True, help="Show it again every two seconds until Ctrl-C.")
@click.option("--services", is_flag=True, help="Only the services, and where the dashboard is.")
@common.as_json
def command(pipeline: str | None, watch: bool, services: bool, json_: bool) -> None:
    """Count files per stage and status, and tell the workers and jobs there are.

    `working` are files that wait to be worked. With the ID of a message or file: how that one stands.
    """
    config = common.configuration(pipeline)
    if services:
        running.show(config, json_=json_)
        return
    source = _meant(config, pipeline)
    while True:
        facts = _facts(config, pipeline) if source is None else one.facts(config, source)
        if json_:
            common.print_json(facts)
        else:
            if watch:
                click.clear()
            _print(facts) if source is None else one.print_facts(facts)
        if not watch:
            return
        time.sleep(2)


def _meant(config: Config, text: str | None) -> SourceNote | None:
    """Give the message or file that is meant by what is no pipeline's name; None where none is."""
    if text is None or text in config.pipelines or text in config.broken or not one.look_up(config, text):
        return None
    return one.find(config, text)


def _facts(config: Config, pipeline: str | None) -> dict[str, Any]:
    tree = layouts.Layout(config.data)
    redis = _redis(config)
    places = []
    counted = history.counts(config, common.chosen(config, pipeline), common.tell)
    for place, counts in counted.items():
        waiting = counts[Status.WORKING]
        places.append(
            {
                "place": str(place),
                **{str(status): count.files for status, count in counts.items()},
                "oldest_waiting": survey.age(waiting.oldest),
                "settling": waiting.settling,
                "not_done": waiting.not_done,
                "ignored": sum(count.ignored for count in counts.values()),
                "paused": pauses.told(config, tree, place),
                "away_since": _away_since(tree, place),
            }
        )
    return {
        "data": str(config.data),
        "places": places,
        # a Redis that does not answer is not asked again
        "in_work": in_work.facts(config, list(counted)) if isinstance(redis, dict) else [],
        "services": running.facts(config),
        "redis": redis,
        "unserved": [asdict(one) for one in unserved.read(config.data).values()],
        "held": sorted(config.broken),
        "not_configured": _not_configured(config),
    }


def _not_configured(config: Config) -> list[str]:
    """Give the folders of pipelines that are no longer configured: nobody looks into them."""
    known = {*config.pipelines, *config.broken}
    return sorted(
        notes.parent.name for notes in config.data.glob("*/.notes") if notes.parent.name not in known
    )


def _away_since(tree: layouts.Layout, place: Place) -> float | None:
    known = away.read(tree, place) if place.location else None
    return known.since if known else None


def _redis(config: Config) -> dict[str, Any] | str | None:
    from etl.errors import Unavailable
    from etl.queues.census import census

    if not (config.data / ".etl" / "id").exists():
        return None
    try:
        return census(config.settings.redis, config.data, layouts.Layout(config.data).data_id())
    except Unavailable as error:
        return error.summary


def _print(facts: dict[str, Any]) -> None:
    statuses = [str(status) for status in Status]
    rows = []
    for place in facts["places"]:
        counts = [place[status] for status in statuses]
        # places where nothing ever happened and our own requests only take room
        if any(counts) or place["place"].count("/") == 1:
            rows.append([place["place"], *counts, common.ago(place["oldest_waiting"])])
    heads = ["place", "working\n(waiting)", *statuses[1:], "oldest"]
    common.print_table(heads, rows, right=heads[1:])
    settling, not_done, ignored = (
        sum(place[key] for place in facts["places"]) for key in ("settling", "not_done", "ignored")
    )
    if settling:
        click.echo(_said_of_drops(settling, not_done, facts["services"]))
    if ignored:
        click.echo(
            f"{common.number(ignored, 'file')} ignored (hidden, half-written or temporary names, done-files)"
        )
    in_work.show(facts["in_work"])
    _print_pauses(facts["places"])
    if facts["held"]:
        click.echo(f"held because of their configuration: {', '.join(facts['held'])} (see `etl check`)")
    if facts["not_configured"]:
        click.echo(f"no longer configured, nobody looks there: {', '.join(facts['not_configured'])}")
    for queue in facts["unserved"]:
        click.echo(
            f"queue {queue['queue']}: {queue['waiting']:,} wait and no worker serves it "
            f"({common.number(queue['checks'], 'check')}" + (f"; {queue['why']})" if queue["why"] else ")")
        )
    running.print_services(facts["services"])
    click.echo(_said_of(facts["redis"]))


def _print_pauses(places: list[dict[str, Any]]) -> None:
    """Say why places begin nothing, one line for each cause: a full disk pauses all of them."""
    by_cause: dict[str, list[str]] = {}
    for place in places:
        if place["paused"]:
            by_cause.setdefault(place["paused"], []).append(place["place"])
    for cause, paused in by_cause.items():
        where = "everything" if len(paused) == len(places) else ", ".join(paused)
        click.echo(f"paused: {where}: {cause}")


def _said_of_drops(settling: int, not_done: int, services: list[dict[str, Any]]) -> str:
    drops = common.number(settling, "drop")
    if not any(one["name"] == "dropbox" for one in services):
        return f"{drops} not yet taken, and no dropbox runs: start `etl up`, or: etl run PIPELINE"
    return f"{drops} not yet taken: settling" + (
        f", {not_done:,} of them without a done-file" if not_done else ""
    )


def _said_of(redis: Any) -> str:
    if redis is None:
        return "no workers: the embedded Redis does not run"
    if isinstance(redis, str):
        return redis
    queues = [
        f"{name}: {jobs['queued']:,} queued, {jobs['started']:,} started"
        for name, jobs in redis["queues"].items()
    ]
    return "; ".join([common.number(redis["workers"], "worker"), *queues])

"""The verbs: their names, groups and one-line helps, without importing any of them.

`etl --help` reads this table; the module of a verb is imported when it is called.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

#: verb -> (group, what it does).
VERBS = {
    "run": ("Daily", "copy files in, work them in the foreground, exit with the verdict"),
    "publish": ("Daily", "put in a message with headers, and print its id"),
    "wait": ("Daily", "wait until a message or file has ended, exit with the verdict"),
    "extract": ("Daily", "ask for files to be pulled from the sources"),
    "status": ("Daily", "count files per stage and status, or tell how one message stands"),
    "files": ("Daily", "one line per source file: rows, loaded, held back, verdict"),
    "failed": ("Daily", "what failed and why"),
    "show": ("Daily", "everything about one file"),
    "trace": ("Daily", "from a row at a location to its file, line and bytes"),
    "retry": ("Daily", "move failed files back to working"),
    "replay": ("Daily", "bring the files of some days back, out of the archives too"),
    "discard": ("Daily", "move failed files into the archive, with your reason"),
    "acts": ("Daily", "who retried, discarded or paused what, and when"),
    "pause": ("Daily", "begin nothing more of a pipeline or a stage"),
    "resume": ("Daily", "go on with what was paused"),
    "drain": ("Daily", "take nothing new in, and wait until what is on its way has ended"),
    "schedule": ("Daily", "what runs by the clock: when it last ran, when it runs next"),
    "clean": ("Daily", "archive and remove what has come to rest"),
    "init": ("Set-up", "write a commented starter configuration"),
    "check": ("Set-up", "try everything that can be set up wrong, and say what to do"),
    "notify": ("Set-up", "who is told of what; --test tells each of them something now"),
    "up": ("Set-up", "start everything and keep it running until stopped"),
    "reload": ("Set-up", "check the configuration, then start every service anew"),
    "fsck": ("Advanced", "hold everything against what is promised, and mend what is safe"),
    "service": ("Advanced", "one service alone, for systemd"),
    "worker": ("Advanced", "work the queues on this host until stopped"),
}


class Verbs(click.Group):
    """A group that knows its verbs by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the verbs in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"etl.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a verb, or suggest the near one."""
        from difflib import get_close_matches

        name = args[0]
        if name not in VERBS and not name.startswith("-") and (near := get_close_matches(name, VERBS, 1)):
            ctx.fail(f"no such verb {name!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs in their groups."""
        for group in dict.fromkeys(group for group, _ in VERBS.values()):
            with formatter.section(group):
                formatter.write_dl([(verb, does) for verb, (its, does) in VERBS.items() if its == group])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.option(
    "--config",
    type=click.Path(path_type=Path, file_okay=False),
    help="The config folder; default: ETL_CONFIG, else ./config or one above.",
)
@click.option("--data", help="The data folder; default: as in settings.yaml.")
@click.version_option(package_name="rq-etl", prog_name="etl")
@click.pass_context
def etl(ctx: click.Context, config: Path | None, data: str | None) -> None:
    """File-driven ETL: a file's folder is its status, and retry is a move.

    Exit codes: 0 done, 1 something failed or is partial, 2 usage or configuration.
    """
    ctx.obj = {"config": config, "overrides": {"data": data} if data else {}}

"""The edge: runs a verb and turns whatever it raises into a line an operator can act on and an exit code.

No traceback reaches an operator for something an operator caused.
"""

from __future__ import annotations

import io
import os
import sys

import click

from etl import disk
from etl.cli.verbs import etl
from etl.errors import ConfigError, EtlError, NoRoom, Unavailable


def run(arguments: list[str]) -> int:
    """Run one command and give its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a name this terminal cannot show must not end the command that shows it
            stream.reconfigure(errors="backslashreplace")
    try:
        code = etl.main(args=arguments, prog_name="etl", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return 2
    except (ConfigError, Unavailable) as error:
        return _say(error, 2)
    except EtlError as error:
        return _say(error, 1)
    except BrokenPipeError:
        # whoever read our output has gone; there is nobody left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno in disk.NO_ROOM:
            return _say(
                NoRoom(f"there is no room on the disk ({error})", next="make room, then do it again"), 2
            )
        click.echo(f"etl: {error.strerror or error}: {error.filename or ''}".rstrip(": "), err=True)
        return 1


def _say(error: EtlError, code: int) -> int:
    for line in str(error).splitlines():
        click.echo(f"etl: {line}", err=True)
    return code

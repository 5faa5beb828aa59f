"""`etl` and `python -m etl`: the one edge at which an error becomes a line and an exit code."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; exit 0 done, 1 something failed or is partial, 2 usage or configuration."""
    from etl.cli import edge

    sys.exit(edge.run(sys.argv[1:]))


if __name__ == "__main__":
    main()

"""fsck: every promise that can be held against folders, notes, queue and locations, and is broken.

Looks only; a finding may carry a fix, which whoever asked may call. Called by `etl fsck` and by our own tests.
"""

from etl.services.fsck.finding import Finding, Scope, Tally
from etl.services.fsck.looking import open_app, walk

__all__ = ["Finding", "Scope", "Tally", "open_app", "walk"]

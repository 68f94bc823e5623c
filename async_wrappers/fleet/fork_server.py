"""The fork server preloads this module last, and ignores SIGINT and SIGTERM from then on; both were blocked until then.

Without it Ctrl-C in the seconds in which it imports torch ends it with a traceback, and SIGTERM to a run's process
group ends it at any time. Processes that it forks for others receive both as ever.
"""

from __future__ import annotations

from async_wrappers.fleet.child import ignore_signals

ignore_signals()

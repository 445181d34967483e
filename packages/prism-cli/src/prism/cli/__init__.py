"""The `prism` command: print, JSON and RPC modes over a session, and a store's sessions.

`prism.cli.client` drives the RPC from Python.
"""

import gc
import sys
import typing

if typing.TYPE_CHECKING:
    from prism.cli._host import App, HostOptions

__version__ = "0.1.0"

__all__ = ["App", "HostOptions", "__version__", "main"]


def main(argv: list[str] | None = None) -> int:
    """Run the `prism` command.

    `--version` answers before anything else is imported, so that scripts can probe for the
    command at the cost of starting Python.

    Args:
        argv: Arguments without the command's name; default: this process's.

    Returns:
        The exit status: 0, 1 (the run failed), 2 (usage), 128 plus the signal's number when one
        ended it, 141 when the reader of stdout has gone.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:
        sys.stdout.write(f"prism {__version__}\n")
        return 0
    # What imports make stays; collecting in between takes a tenth of the time to the first answer.
    collecting = gc.isenabled()
    gc.disable()
    try:
        from prism.cli._main import run

        return run(arguments)
    except KeyboardInterrupt:  # before or after the modes, which take SIGINT themselves
        return 130
    finally:
        if collecting:
            gc.enable()


def __getattr__(name: str) -> typing.Any:
    if name in {"App", "HostOptions"}:
        from prism.cli import _host

        return getattr(_host, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

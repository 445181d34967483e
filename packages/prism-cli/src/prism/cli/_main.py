"""The click command behind `prism`. `--help` and usage errors import no more than this."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import click

from prism.cli import __version__
from prism.cli._options import run_flags

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

_DEFAULT = click.core.ParameterSource.DEFAULT


class _Command(click.Group):
    """A group that knows what a word that is no command was meant to be."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            message = f"{error.format_message()} A prompt is given with -p, in quotes."
            raise click.UsageError(message, ctx) from None


@click.group(
    name="prism",
    cls=_Command,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="prism %(version)s")
@run_flags
def command(**flags: Any) -> int:
    """Run an agent from the command line.

    With -p it answers one prompt; with --mode rpc it serves requests on stdin.
    """
    context = click.get_current_context()
    if context.invoked_subcommand is not None:
        given = [name for name in flags if context.get_parameter_source(name) is not _DEFAULT]
        if given:
            raise click.UsageError(f"{given[0]}: flags of {context.invoked_subcommand} follow it.")
        return 0
    mode: str = flags.pop("mode")
    prompt: str | None = flags.pop("prompt")
    app: str | None = flags.pop("app")
    if mode == "rpc":
        if prompt is not None:
            raise click.UsageError("-p belongs to the modes print and json; with rpc, send it.")
    elif prompt is None or not prompt.strip():
        raise click.UsageError(
            f"The mode {mode} needs a prompt: give it with -p, "
            'as in `prism --provider mock -p "Hi"`; --help lists the rest.'
        )
    from prism.cli import _run

    return _run.run(mode=mode, prompt=prompt or "", app=app, flags=flags)


@command.group()
def sessions() -> None:
    """See what a store holds."""


_store = click.option(
    "--store", required=True, metavar="DIR|sqlite:FILE", help="Where the sessions are kept."
)
_json = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")


@sessions.command("list")
@_store
@_json
def list_sessions(store: str, as_json: bool) -> int:  # noqa: FBT001
    """List the sessions, the newest activity first."""
    from prism.cli import _sessions

    return _sessions.run(store, partial(_sessions.list_sessions, as_json=as_json))


@sessions.command()
@click.argument("session")
@_store
@_json
@click.option("--memory", is_flag=True, help="What observational memory has recorded, instead.")
def show(session: str, store: str, as_json: bool, memory: bool) -> int:  # noqa: FBT001
    """Show a session's tree, with its branches, labels and compactions."""
    from prism.cli import _sessions

    show = partial(_sessions.show_session, session_id=session, as_json=as_json, memory=memory)
    return _sessions.run(store, show)


@sessions.command()
@click.argument("session")
@_store
@click.option("-o", "--output", metavar="FILE", help="A new file; default: stdout.")
def export(session: str, store: str, output: str | None) -> int:
    """Write a session as it is stored, one entry of JSON a line."""
    from prism.cli import _sessions

    return _sessions.run(store, partial(_sessions.export, session_id=session, output=output))


def run(arguments: Sequence[str]) -> int:
    """Run the command; every failure is one line on stderr and an exit status."""
    try:
        result: object = command.main(list(arguments), prog_name="prism", standalone_mode=False)
    except click.Abort:
        return EXIT_INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    except click.ClickException as error:
        complain(error.format_message())
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the command's one boundary: no traceback
        complain(f"{type(error).__name__}: {error}")
        return EXIT_FAILED
    return result if isinstance(result, int) else 0


def complain(message: str) -> None:
    """Say what was wrong, in one line."""
    line = " ".join(message.split())
    try:
        sys.stderr.write(f"prism: {line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # nobody can hear it

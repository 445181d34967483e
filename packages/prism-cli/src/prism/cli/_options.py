"""The flags of the command, and what click may not know: nothing here imports the runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

MODES: Final = ("print", "json", "rpc")

THINKING_LEVELS: Final = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
"""The runtime's own."""

MAX_TOOL_ROUNDS: Final = 10_000
"""The runtime's own hard cap."""

MAX_COMPACT_ENTRIES: Final = 1_000_000
"""Hard cap of `--compact`; a branch of that size is compacted long before."""

_FLAGS: Final = (
    click.option(
        "-p", "--prompt", metavar="TEXT", help="What to say to the model (print and JSON modes)."
    ),
    click.option(
        "--mode",
        type=click.Choice(MODES),
        default="print",
        show_default=True,
        help="print: the answer's text. json: one event a line. rpc: requests on stdin.",
    ),
    click.option(
        "--provider",
        metavar="NAME",
        help="Who answers: mock, openai-chat, …; an unknown name lists them all.",
    ),
    click.option("--model", metavar="NAME", help="The provider's name of the model."),
    click.option("--base-url", metavar="URL", help="Address of the provider's API."),
    click.option(
        "--credential-env",
        metavar="NAME",
        help="The environment variable that holds the provider's key.",
    ),
    click.option("--session", metavar="ID", help="The session to go on with, or to begin."),
    click.option(
        "--store",
        metavar="DIR|sqlite:FILE",
        help="Where sessions are kept; without it they end with the process.",
    ),
    click.option("--system", metavar="TEXT", help="System instructions."),
    click.option(
        "--thinking",
        "thinking_level",
        type=click.Choice(THINKING_LEVELS),
        metavar="LEVEL",
        help=f"How much the model thinks first: {', '.join(THINKING_LEVELS)}.",
    ),
    click.option(
        "--max-tool-rounds",
        type=click.IntRange(1, MAX_TOOL_ROUNDS),
        metavar="N",
        help="Rounds of tool calls that a run may take.",
    ),
    click.option(
        "--compact",
        type=click.IntRange(1, MAX_COMPACT_ENTRIES),
        metavar="ENTRIES",
        help="Compact before a run when the context holds more entries than this.",
    ),
    click.option(
        "--redact-env",
        multiple=True,
        metavar="NAME",
        help="An environment variable whose value is never stored or shown; repeatable.",
    ),
    click.option(
        "--app",
        metavar="MODULE:ATTR",
        help="The host that makes the sessions; its module is imported, from here too.",
    ),
    click.option("--config", metavar="PATH", help="For the app; not loaded by prism."),
    click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="URI",
        help="For the app; not loaded by prism; repeatable.",
    ),
    click.option(
        "--extension",
        "extensions",
        multiple=True,
        metavar="NAME",
        help="For the app; not loaded by prism; repeatable.",
    ),
    click.option(
        "--tool",
        "tools",
        multiple=True,
        metavar="NAME",
        help="For the app; not enabled by prism; repeatable.",
    ),
    click.option("--context", metavar="TEXT", help="For the app; not used by prism."),
)


def run_flags(command: F) -> F:
    """Give *command* the flags of a run, in the order in which `--help` lists them."""
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command

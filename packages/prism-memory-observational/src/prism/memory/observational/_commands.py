"""Commands for people: how the memory stands, and what is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import isawaitable
from typing import Any, Final

import msgspec

from prism.core import CommandResult, Secret, SecretRedactor, SessionEntry, TextBlock, UsageError
from prism.core.host import CommandContext, CommandDefinition
from prism.memory.observational._projection import build_projection
from prism.memory.observational._runtime import ObservationalMemory
from prism.memory.observational._settings import ObservationalMemorySettings
from prism.memory.observational._shapes import is_mapping, is_series
from prism.memory.observational._status import memory_status, status_text, status_value, view_text
from prism.memory.observational._tool import GetEntries

STATUS_COMMAND: Final = "om:status"
VIEW_COMMAND: Final = "om:view"
VIEW_USAGE: Final = "Usage: /om:view [full]"


def status_command(
    get_entries: GetEntries | None = None,
    *,
    settings: ObservationalMemorySettings | None = None,
    memory: Callable[[str], ObservationalMemory | None] | None = None,
    secrets: Sequence[str | Secret] = (),
) -> CommandDefinition:
    """The command `om:status`: counts, thresholds, and what went wrong, as text and as data.

    Args:
        get_entries: The current branch by session id; default: of the session that is current
            where the command is run.
        settings: For the thresholds; default: those of *memory*, else the defaults.
        memory: The runtime by session id, if one is at work; its state is shown too.
        secrets: Exact strings that must not be in the answer.
    """
    redactor = SecretRedactor(secrets)

    async def execute(_args: Any, context: CommandContext) -> CommandResult:
        path = await _entries(get_entries, context)
        runtime = None if memory is None else memory(_session_id(context))
        if runtime is None:
            status = memory_status(path, settings)
        else:
            own = await runtime.status()
            status = memory_status(
                path,
                settings or runtime.settings(),
                runtime=own.runtime,
                compact_after_tokens=own.compact_after_tokens,
            )
        return _result(STATUS_COMMAND, status_text(status), status_value(status), redactor)

    return CommandDefinition(
        name=STATUS_COMMAND, description="Show how the memory stands.", execute=execute
    )


def view_command(
    get_entries: GetEntries | None = None, *, secrets: Sequence[str | Secret] = ()
) -> CommandDefinition:
    """The command `om:view`: what the model sees of the memory, or with `full` all that is in use.

    Args:
        get_entries: As for `status_command`.
        secrets: Exact strings that must not be in the answer.
    """
    redactor = SecretRedactor(secrets)

    async def execute(args: Any, context: CommandContext) -> CommandResult:
        mode = _mode(args)
        if mode is None:
            return CommandResult(name=VIEW_COMMAND, content=[TextBlock(text=VIEW_USAGE)])
        found = build_projection(await _entries(get_entries, context))
        if mode == "full":
            observations, reflections, what = found.observations, found.reflections, "recorded"
        else:
            visible = found.visible
            observations = visible.observations if visible else ()
            reflections = visible.reflections if visible else ()
            what = "visible"
        value = {
            "mode": mode,
            "reflections": msgspec.to_builtins(reflections),
            "observations": msgspec.to_builtins(observations),
        }
        return _result(VIEW_COMMAND, view_text(observations, reflections, what), value, redactor)

    return CommandDefinition(
        name=VIEW_COMMAND, description="Show the memory: [full].", execute=execute
    )


def memory_commands(
    get_entries: GetEntries | None = None,
    *,
    settings: ObservationalMemorySettings | None = None,
    memory: Callable[[str], ObservationalMemory | None] | None = None,
    secrets: Sequence[str | Secret] = (),
) -> list[CommandDefinition]:
    """Both commands, with the arguments of `status_command`."""
    return [
        status_command(get_entries, settings=settings, memory=memory, secrets=secrets),
        view_command(get_entries, secrets=secrets),
    ]


def _mode(args: Any) -> str | None:
    """`visible` or `full`; `None` for anything else."""
    if is_mapping(args):
        args = args.get("mode", "visible") if set(args) <= {"mode"} else "?"
    if args is None or (isinstance(args, str) and not args.strip()):
        return "visible"
    if is_series(args):
        args = " ".join(str(one) for one in args) if args else "visible"
    if isinstance(args, str) and args.strip() in {"visible", "full"}:
        return args.strip()
    return None


def _session_id(context: CommandContext) -> str:
    if context.session_id is not None:
        return context.session_id
    return "" if context.session is None else str(context.session.id)


async def _entries(get_entries: GetEntries | None, context: CommandContext) -> list[SessionEntry]:
    if get_entries is None:
        if context.session is None:
            raise UsageError("There is no current session to look at.", code="session_not_found")
        found: Any = context.session.entries()
    else:
        found = get_entries(_session_id(context))
    if isawaitable(found):
        found = await found
    entries: Iterable[SessionEntry] = found
    return list(entries)


def _result(name: str, text: str, value: Any, redactor: SecretRedactor) -> CommandResult:
    return CommandResult(
        name=name,
        content=[TextBlock(text=redactor.redact_text(text))],
        value=redactor.redact_value(value),
    )

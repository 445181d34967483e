from __future__ import annotations

import sys
import threading
from functools import partial
from typing import Any

import anyio
import pytest

from prism.core._errors import ToolError, UsageError
from prism.core._wire import ErrorInfo, ImageBlock, TextBlock
from prism.core.host import CommandContext, CommandDefinition, CommandResult, run_command

PARAMETERS = {
    "type": "object",
    "properties": {"mode": {"enum": ["full", "short"]}},
    "additionalProperties": False,
}


def command(execute: Any, parameters: dict[str, Any] | None = None) -> CommandDefinition:
    return CommandDefinition(name="om:view", execute=execute, parameters=parameters)


async def test_an_async_command_runs_in_the_callers_task_and_a_sync_one_in_a_worker_thread() -> (
    None
):
    async def asynchronous(args: Any, context: CommandContext) -> bool:
        await anyio.lowlevel.checkpoint()
        return threading.current_thread() is threading.main_thread()

    class Callable:
        async def __call__(self, args: Any, context: CommandContext) -> bool:
            return threading.current_thread() is threading.main_thread()

    def synchronous(args: Any, context: CommandContext) -> bool:
        return threading.current_thread() is threading.main_thread()

    def mixed(args: Any, context: CommandContext) -> Any:
        return asynchronous(args, context)

    for execute, in_main in (
        (asynchronous, True),
        (partial(asynchronous), True),
        (Callable(), True),
        (synchronous, False),
        (mixed, True),
    ):
        assert (await run_command(command(execute))).value is in_main


async def test_arguments_and_context_reach_the_command() -> None:
    seen: list[tuple[Any, CommandContext]] = []

    def execute(args: Any, context: CommandContext) -> None:
        seen.append((args, context))

    context = CommandContext(session_id="s", metadata={"a": 1})
    await run_command(command(execute), {"x": [1]}, context)
    await run_command(command(execute), "free text")
    await run_command(command(execute))
    await run_command(command(execute, PARAMETERS))
    assert [args for args, _ in seen] == [{"x": [1]}, "free text", None, {}]
    assert seen[0][1] is context
    assert seen[1][1] == CommandContext()


def returning(value: Any, parameters: dict[str, Any] | None = None) -> CommandDefinition:
    def execute(args: Any, context: CommandContext) -> Any:
        return value

    return command(execute, parameters)


BLOCK = TextBlock(text="a")
IMAGE = ImageBlock(url="https://host/a.png")
WHOLE = CommandResult(name="om:view", value=1, error=ErrorInfo(message="half"))


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("a", CommandResult(name="om:view", content=[BLOCK])),
        (BLOCK, CommandResult(name="om:view", content=[BLOCK])),
        ([BLOCK, IMAGE], CommandResult(name="om:view", content=[BLOCK, IMAGE])),
        (None, CommandResult(name="om:view")),
        ([], CommandResult(name="om:view", value=[])),
        ({"n": 1}, CommandResult(name="om:view", value={"n": 1})),
        (WHOLE, WHOLE),
        (CommandResult(name="other", value=1), CommandResult(name="om:view", value=1)),
    ],
    ids=["text", "block", "blocks", "none", "empty", "value", "result", "other-name"],
)
async def test_what_a_command_returns_becomes_its_result(
    returned: Any, expected: CommandResult
) -> None:
    assert await run_command(returning(returned)) == expected


async def test_arguments_are_checked_before_the_command_runs() -> None:
    ran: list[Any] = []

    def execute(args: Any, context: CommandContext) -> None:
        ran.append(args)

    definition = command(execute, PARAMETERS)
    await run_command(definition, {"mode": "full"})
    for args in ({"mode": "long"}, {"other": 1}, "full", [1]):
        with pytest.raises(UsageError, match=r"Command 'om:view': .*\$") as caught:
            await run_command(definition, args)
        assert caught.value.code == "invalid_arguments"
    assert ran == [{"mode": "full"}]


async def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    definition = returning(None, {**PARAMETERS, "$comment": "not cached"})
    with pytest.raises(UsageError, match=r"Command 'om:view': .*prism-core\[schema\]") as caught:
        await run_command(definition, {})
    assert caught.value.code == "missing_extra"


async def test_a_commands_own_error_comes_as_it_is() -> None:
    def failing(args: Any, context: CommandContext) -> None:
        raise ToolError("no such view", code="unknown_view")

    with pytest.raises(ToolError, match="no such view"):
        await run_command(command(failing))


@pytest.mark.parametrize("returned", [object(), float("nan")], ids=["object", "nan"])
async def test_a_result_that_is_not_json_is_refused(returned: object) -> None:
    with pytest.raises(UsageError, match="'om:view' returned what JSON cannot hold") as caught:
        await run_command(returning(returned))
    assert caught.value.code == "invalid_result"

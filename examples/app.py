"""An app for `prism --app`: tools, one of which asks first, a store, an extension and commands.

    prism --app examples.app:app -p "What is 2 + 3?"
    prism --app examples.app:app --mode rpc --store sessions

It plays a script instead of asking a model, so that it runs anywhere. The flags that prism only
records mean what the app makes of them: here `--tool` chooses among the tools, `--extension
counting` loads an extension, and `--context` is shown to the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prism.cli import HostOptions
from prism.core import (
    Agent,
    Message,
    ModelConfig,
    Session,
    ToolResultBlock,
    UsageError,
    tool,
)
from prism.core.extensions import ExtensionApi, ExtensionKernel, extension
from prism.core.host import (
    CommandContext,
    CommandDefinition,
    PermissionDecision,
    PermissionRequest,
)
from prism.core.providers import (
    MockProvider,
    ProviderEvent,
    ProviderRequest,
    done,
    text_delta,
    tool_call,
)
from prism.core.tools import result_text


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def delete_file(path: str) -> str:
    """Delete a file (this example only says so)."""
    return f"{path} is deleted."


TOOLS = {"add": add, "delete_file": delete_file}


class AskBeforeDeleting:
    """Allows every call but those that cannot be undone."""

    async def decide(self, request: PermissionRequest) -> PermissionDecision:
        """Ask somebody about deletions."""
        if request.name == "delete_file":
            return PermissionDecision(verdict="ask", reason="It cannot be undone.")
        return PermissionDecision(verdict="allow")


@extension("counting")
def counting(api: ExtensionApi) -> None:
    """Counts the requests to the model, and tells with a command."""
    requests: list[str] = []

    def count(payload: Any) -> Any:
        requests.append(payload.session_id)
        return payload

    def status(_args: Any, context: CommandContext) -> dict[str, Any]:
        return {"session": context.session_id, "requests": len(requests)}

    api.use("provider_request", count)
    api.commands.register(
        "counting:status",
        CommandDefinition(name="counting:status", execute=status, description="Requests so far."),
    )


async def note(args: dict[str, Any], context: CommandContext) -> str:
    """Keep a note in the session; the model does not see it."""
    entry = await context.session.append_custom({"type": "example.note", "text": args["text"]})
    return f"Noted as {entry.id}."


NOTE = CommandDefinition(
    name="example:note",
    execute=note,
    description="Keep a note in the session; the model does not see it.",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
)


def play(request: ProviderRequest) -> Iterable[ProviderEvent]:
    """Stands in for a model: calls the tool that the prompt is about, and reads its result."""
    last = request.messages[-1]
    offered = {spec.name for spec in request.tools}
    if last.role == "tool":
        yield text_delta(result_of(last) or "I may not do that.")
    elif "delete" in last.text and "delete_file" in offered:
        yield tool_call(id="", name="delete_file", arguments={"path": "notes.txt"})
    elif "+" in last.text and "add" in offered:
        yield tool_call(id="", name="add", arguments={"a": 2, "b": 3})
    else:
        yield text_delta(f"You said: {last.text}")
    yield done()


def result_of(message: Message) -> str | None:
    """What a tool said, unless it failed or was not allowed."""
    for block in message.content:
        if isinstance(block, ToolResultBlock) and block.error is None:
            return f"The tool says: {result_text(block)}"
    return None


class ExampleApp:
    """Makes the sessions of one agent; `prism` asks for each session that is opened."""

    def __init__(self) -> None:
        self.kernel = ExtensionKernel()
        self._agent: Agent | None = None

    @property
    def commands(self) -> Sequence[CommandDefinition]:
        """The app's own, and those of its extensions."""
        return [NOTE, *self.kernel.registries.commands.list()]

    async def create_session(self, options: HostOptions) -> Session:
        """The session that the flags ask for."""
        if self._agent is None:
            self._agent = await self._make_agent(options)
        return self._agent.session(options.session)

    async def _make_agent(self, options: HostOptions) -> Agent:
        unknown = set(options.tools) - set(TOOLS)
        if unknown:
            raise UsageError(f"No tool {sorted(unknown)}; there are {sorted(TOOLS)}.")
        if "counting" in options.extensions:
            await self.kernel.load([counting])
        system = ["You are an example."]
        if options.context is not None:
            system.append(options.context)
        return Agent(
            model=ModelConfig(provider="mock", model=options.model or "example"),
            provider=MockProvider(play),
            tools=[TOOLS[name] for name in options.tools or TOOLS],
            system=system,
            store=options.open_store(),
            middleware=self.kernel.middleware,
            permissions=AskBeforeDeleting(),
        )


app = ExampleApp()

"""What a provider is held to is a list of cases; a harness scripts its vendor's side."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from anyio import CancelScope

from prism.core._contracts import Provider, ProviderRequest, ToolSpec
from prism.core._errors import UsageError
from prism.core._wire import Message, ModelConfig, ProviderOptions, TextBlock, Usage

ProviderNeed: TypeAlias = Literal[
    "thinking", "calls", "call_ids", "raw_arguments", "usage", "errors", "stalls", "secret", "loops"
]
"""What a provider, or the harness, may not offer; see `ProviderHarness`."""

PATIENCE_SECONDS: Final = 30
"""How long the suite waits for what should happen at once."""


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the vendor's model makes.

    Attributes:
        arguments: JSON text of the arguments, in the pieces in which the vendor sends it; one
            that sends them whole joins them.
    """

    id: str
    name: str
    arguments: tuple[str, ...] = ("{}",)


class ScriptedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the vendor's side does when it is asked once: content in this order, then an end.

    Attributes:
        thinking: Pieces of readable reasoning.
        text: Pieces of text.
        calls: Calls, one after the other.
        usage: What the vendor counts; it tells so in the way it usually does.
        stop: `stop`, `tool_use` or `length`, in the vendor's own word.
        end: `complete`: the answer ends as it should. `cut`: the connection ends cleanly, without
            what marks the end of an answer. `fail`: the vendor reports *message* in the midst of
            the stream. `stall`: nothing more comes until the provider hangs up. `refuse`: instead
            of an answer there is an error with *status* and *message*.
        status: HTTP status of a refusal.
        message: The vendor's words for `fail` and `refuse`.
        retry_after_ms: What a refusal asks to wait, in whole seconds.
    """

    thinking: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    calls: tuple[ScriptedCall, ...] = ()
    usage: Usage | None = None
    stop: str = "stop"
    end: Literal["complete", "cut", "fail", "stall", "refuse"] = "complete"
    status: int = 200
    message: str = "The vendor's side failed."
    retry_after_ms: int | None = None


class OpenedProvider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider and its vendor's side.

    Attributes:
        released: Returns when the vendor's side has no answer open any more; the suite gives it a
            while. `None`: the harness cannot tell.
    """

    provider: Provider
    released: Callable[[], Awaitable[None]] | None = None


class ProviderHarness(msgspec.Struct, frozen=True, kw_only=True):
    """How the suite gets a provider whose vendor does what a case needs.

    Attributes:
        open: Makes a provider whose vendor's side gives these answers, one for each request, and
            the last one again and again. May be async.
        model: What requests name as their model.
        secret: The credential that the provider was given; some error messages will repeat it.
        thinking: The wire can carry readable reasoning.
        calls: The wire can carry calls.
        call_ids: The vendor gives its calls ids.
        raw_arguments: The vendor sends arguments as text, which may be broken.
        usage: The vendor counts tokens.
        errors: The harness can refuse, fail and cut.
        stalls: The harness can stall.
        loops: One provider may be used in several event loops, one after the other.
    """

    open: Callable[
        [Sequence[ScriptedAnswer]],
        Provider | OpenedProvider | Awaitable[Provider | OpenedProvider],
    ]
    model: ModelConfig = ModelConfig(provider="test", model="test-model")
    secret: str | None = None
    thinking: bool = True
    calls: bool = True
    call_ids: bool = True
    raw_arguments: bool = True
    usage: bool = True
    errors: bool = True
    stalls: bool = True
    loops: bool = True

    def offers(self, need: ProviderNeed) -> bool:
        """Whether there is what a case needs."""
        return self.secret is not None if need == "secret" else bool(getattr(self, need))


class ProviderStage:
    """What a case works with: providers whose vendors follow its script."""

    def __init__(self, harness: ProviderHarness) -> None:
        self.harness = harness
        self._opened: list[Provider] = []

    async def open(self, *answers: ScriptedAnswer) -> Provider:
        """A provider whose vendor gives these answers."""
        return (await self.open_both(*answers)).provider

    async def open_both(self, *answers: ScriptedAnswer) -> OpenedProvider:
        """The same, with what the harness knows of the vendor's side."""
        made: Any = self.harness.open(answers)
        if inspect.isawaitable(made):
            made = await made
        opened = made if isinstance(made, OpenedProvider) else OpenedProvider(provider=made)
        self._opened.append(opened.provider)
        return opened

    def ask(
        self,
        *messages: Message,
        tools: Sequence[ToolSpec] = (),
        system: Sequence[str] = (),
        options: ProviderOptions | None = None,
    ) -> ProviderRequest:
        """A request; without messages it says `Hi`."""
        return ProviderRequest(
            model=self.harness.model,
            messages=messages or (user("Hi"),),
            tools=tools,
            system=system,
            options=options or ProviderOptions(),
        )

    async def close(self) -> None:
        """Close every provider."""
        while self._opened:
            await close_provider(self._opened.pop())


async def close_provider(provider: Provider) -> None:
    """Close a provider that can be closed."""
    close: Any = getattr(provider, "aclose", None)
    if close is not None:
        await close()


class ProviderCase(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that every provider does.

    Attributes:
        name: The sentence that the case proves, with underscores.
        needs: What the harness must offer for the case to apply.
        run: Raises `AssertionError` when the provider does something else.
    """

    name: str
    run: Callable[[ProviderStage], Awaitable[None]]
    needs: frozenset[ProviderNeed] = frozenset()

    def __str__(self) -> str:
        return self.name


def case(
    *needs: ProviderNeed,
) -> Callable[[Callable[[ProviderStage], Awaitable[None]]], ProviderCase]:
    """Make a case of an async function that takes a stage."""

    def make(run: Callable[[ProviderStage], Awaitable[None]]) -> ProviderCase:
        return ProviderCase(name=getattr(run, "__name__", "case"), run=run, needs=frozenset(needs))

    return make


def cases_of(names: dict[str, Any]) -> tuple[ProviderCase, ...]:
    """The cases among a module's names, in the order in which they were written."""
    return tuple(value for value in names.values() if isinstance(value, ProviderCase))


async def run_provider_case(case: ProviderCase, harness: ProviderHarness) -> None:
    """Hold a provider to one case.

    Raises:
        AssertionError: The provider does not do what the case says.
        UsageError: The case needs what the harness does not offer; `provider_cases` leaves such
            cases out.
    """
    for need in sorted(case.needs):
        if not harness.offers(need):
            raise UsageError(f"The case {case.name} needs a harness with {need}.")
    stage = ProviderStage(harness)
    try:
        await case.run(stage)
    finally:
        with CancelScope(shield=True):
            await stage.close()


def user(*texts: str) -> Message:
    """A message of the user."""
    return Message(role="user", content=[TextBlock(text=text) for text in texts])

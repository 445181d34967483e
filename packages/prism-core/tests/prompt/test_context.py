from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from prism.core._errors import RegistryError, UsageError
from prism.core._wire import ContentBlock, TextBlock, ToolResultBlock
from prism.core.prompt import (
    ContextProvider,
    ContextRequest,
    OptionalContext,
    StaticContext,
    resolve_context,
)

REQUEST = ContextRequest(session_id="s", run_id="r", metadata={"cwd": "/"})


def never(name: str, error: Exception) -> None:
    pytest.fail(f"{name} reported {error!r}")


class Recorded:
    def __init__(self, name: str, log: list[str], gives: Any = ()) -> None:
        self.name = name
        self.log = log
        self.gives = gives

    async def provide(self, request: ContextRequest) -> Sequence[ContentBlock]:
        assert request is REQUEST
        self.log.append(f"{self.name} begins")
        await anyio.lowlevel.checkpoint()
        self.log.append(f"{self.name} ends")
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives


async def test_providers_are_asked_one_after_the_other_in_order() -> None:
    log: list[str] = []
    first, second, third = (TextBlock(text=text) for text in "123")
    blocks = await resolve_context(
        [Recorded("a", log, [first, second]), Recorded("b", log), Recorded("c", log, (third,))],
        REQUEST,
    )
    assert blocks == [first, second, third]
    assert log == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]


async def test_static_context_gives_the_same_block_each_time() -> None:
    provider = StaticContext("house", "Be kind.")
    assert isinstance(provider, ContextProvider)
    (first,) = await resolve_context([provider], REQUEST)
    (second,) = await resolve_context([provider], REQUEST)
    assert first is second
    assert first == TextBlock(text="Be kind.")
    assert await resolve_context([StaticContext("none", " \n")], REQUEST) == []


async def test_a_failing_provider_fails_and_is_named() -> None:
    log: list[str] = []
    error = OSError("disk gone")
    with pytest.raises(OSError, match="disk gone") as caught:
        await resolve_context([Recorded("git", log, error), Recorded("b", log)], REQUEST)
    assert caught.value is error
    assert error.__notes__ == ["Raised by the context provider 'git'."]
    assert log == ["git begins", "git ends"]


async def test_an_optional_provider_that_fails_is_reported_and_left_out() -> None:
    log: list[str] = []
    seen: list[tuple[str, Exception]] = []

    def report(name: str, error: Exception) -> None:
        seen.append((name, error))

    error = OSError("disk gone")
    blocks = await resolve_context(
        [
            OptionalContext(Recorded("git", log, error), on_error=report),
            OptionalContext(Recorded("bad", log, "text"), on_error=report),
            OptionalContext(StaticContext("house", "Be kind."), on_error=never),
        ],
        REQUEST,
    )
    assert blocks == [TextBlock(text="Be kind.")]
    assert [name for name, _ in seen] == ["git", "bad"]
    assert seen[0][1] is error
    assert isinstance(seen[1][1], UsageError)


async def test_an_optional_provider_is_cancelled_like_any_other() -> None:
    class Slow:
        name = "slow"

        async def provide(self, request: ContextRequest) -> Sequence[ContentBlock]:
            await anyio.sleep_forever()
            return ()

    with anyio.CancelScope() as scope:
        scope.cancel()
        await resolve_context([OptionalContext(Slow(), on_error=never)], REQUEST)
        pytest.fail("the cancellation was swallowed")
    assert scope.cancelled_caught


@pytest.mark.parametrize(
    "gives",
    ["text", b"x", None, TextBlock(text="x"), [ToolResultBlock(tool_call_id="c", name="n")], ["x"]],
)
async def test_what_is_no_sequence_of_given_blocks_is_refused(gives: Any) -> None:
    with pytest.raises(UsageError, match="'a' gave") as caught:
        await resolve_context([Recorded("a", [], gives)], REQUEST)
    assert caught.value.code == "invalid_context"


async def test_two_providers_of_one_name_are_refused_before_any_is_asked() -> None:
    log: list[str] = []
    with pytest.raises(RegistryError, match="'a'") as caught:
        await resolve_context([Recorded("a", log), StaticContext("a", "x")], REQUEST)
    assert caught.value.code == "duplicate_name"
    assert log == []

"""A provider that plays a script: for tests, examples and `--provider mock`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Final, TypeAlias, cast

import anyio
import msgspec

from prism.core._contracts import Done, Failed, ProviderEvent, ProviderRequest, TextDelta
from prism.core._errors import UsageError
from prism.core._support.limits import non_negative_number
from prism.core._wire import ErrorInfo

MAX_DELAY_MS: Final = 3_600_000
"""Longest delay in a script: an hour."""


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """Wait before the next event of a script."""

    ms: int | float


ScriptItem: TypeAlias = ProviderEvent | Delay | ErrorInfo | Exception
Script: TypeAlias = (
    Sequence[ScriptItem]
    | Sequence[Sequence[ScriptItem]]
    | Callable[[ProviderRequest], Iterable[ScriptItem]]
)

_HELLO: Final = (TextDelta(text="Hello"), Done())


def delay(ms: int | float) -> Delay:
    """Wait *ms* milliseconds before the next event of a script.

    Raises:
        UsageError: `invalid_limit`, unless it is a number from 0 to an hour.
    """
    return Delay(ms=non_negative_number("ms", ms, cap=MAX_DELAY_MS))


class MockProvider:
    """Plays a script; it never suspends unless the script has a `delay`.

    Args:
        script: What to answer; default: `Hello` in one delta, each time.

            - A list of events answers every request alike.
            - A list of lists answers the first request with the first list, and so on. A request
              beyond the last one fails with the code `script_exhausted`, which is not tried again.
            - A function gets each request and gives the events that answer it.

            Beside events a script may hold `delay(ms)`, an `ErrorInfo` (the turn fails with it)
            and an exception (it is raised). Nothing is added: a list without `done()` or
            `error()` is a stream that ends too early.
        id: Id under which models name the provider.
        supports_output_schema: Whether it is to be asked for JSON by a request's schema; default:
            no.

    Attributes:
        requests: Every request, in order.

    Raises:
        UsageError: A script that mixes events and lists.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        id: str = "mock",  # noqa: A002
        supports_output_schema: bool = False,
    ) -> None:
        self.id: str = id
        self.supports_output_schema: bool = supports_output_schema
        self.ends_promptly: bool = script is None or _ends_promptly(script)
        self.requests: list[ProviderRequest] = []
        self._answer = _answers(_HELLO if script is None else script)

    def __repr__(self) -> str:
        return f"MockProvider(id={self.id!r}, requests={len(self.requests)})"

    def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
        """Record the request and answer it with the next part of the script."""
        self.requests.append(request)
        return _play(self._answer(request, len(self.requests) - 1))


def _answers(script: Script) -> Callable[[ProviderRequest, int], Iterable[ScriptItem]]:
    if callable(script):
        return lambda request, _turn: script(request)
    turns: list[Sequence[ScriptItem]] = []
    flat: list[ScriptItem] = []
    for item in script:
        if isinstance(item, list | tuple):
            turns.append(tuple(item))
        else:
            flat.append(item)  # type: ignore[arg-type]
    if turns and flat:
        raise UsageError("A script is a list of events or a list of lists, not both at once.")
    if turns:
        return lambda _request, turn: turns[turn] if turn < len(turns) else [_exhausted(turns)]
    return lambda _request, _turn: flat


def _ends_promptly(script: Script) -> bool:
    """Whether every turn's last item is its terminal event, behind which nothing can wait."""
    if callable(script):
        return False
    nested = bool(script) and isinstance(script[0], list | tuple)
    turns = cast("Sequence[Sequence[ScriptItem]]", script if nested else [script])
    return all(turn and isinstance(turn[-1], Done | Failed | ErrorInfo) for turn in turns)


def _exhausted(turns: Sequence[object]) -> ErrorInfo:
    return ErrorInfo(
        message=f"The script of the mock provider has {len(turns)} turns, and all are played.",
        code="script_exhausted",
        details={"turns": len(turns)},
    )


async def _play(items: Iterable[ScriptItem]) -> AsyncGenerator[ProviderEvent]:
    for item in items:
        if isinstance(item, Delay):
            await anyio.sleep(item.ms / 1000)
        elif isinstance(item, ErrorInfo):
            yield Failed(error=item)
        elif isinstance(item, Exception):
            raise item
        else:
            yield item

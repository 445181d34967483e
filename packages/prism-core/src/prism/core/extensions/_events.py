"""Messages between extensions and their host, by topic."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from prism.core._errors import UsageError
from prism.core._middleware import copy_payload
from prism.core._support.limits import positive_int
from prism.core.extensions._registry import NAME_RULE, is_name

DEFAULT_MAX_HANDLERS: Final = 1_000
"""Handlers that a bus takes when it is not told otherwise."""

MAX_EMIT_DEPTH: Final = 16
"""How many handlers deep emitting may go on: more is two extensions answering each other."""

_HANDLERS_CAP: Final = 100_000


class HandlerFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A handler that failed.

    Attributes:
        topic: What was emitted.
        source: Who brought the handler.
        error: What it raised.
    """

    topic: str
    source: str
    error: Exception


class ExtensionEventBus:
    """Calls the handlers of a topic when something is emitted to it, and keeps nothing.

    It has no tasks of its own: handlers run in the task that emits, one after the other.

    Args:
        on_failure: Told of each handler that fails, beside what `emit` returns.
        max_handlers: How many handlers there may be in all (1 to 100,000).
    """

    __slots__ = ("_handlers", "_max_handlers", "_on_failure")

    def __init__(
        self,
        *,
        on_failure: Callable[[HandlerFailure], None] | None = None,
        max_handlers: int = DEFAULT_MAX_HANDLERS,
    ) -> None:
        self._on_failure = on_failure
        self._max_handlers = positive_int("max_handlers", max_handlers, cap=_HANDLERS_CAP)
        # Tuples, so that an emission keeps the handlers that it began with.
        self._handlers: dict[str, tuple[_Handler, ...]] = {}

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that have handlers, in the order in which they got their first one."""
        return tuple(self._handlers)

    def on(
        self, topic: str, handler: Callable[[Any], Any], *, source: str = "host"
    ) -> Callable[[], None]:
        """Call *handler* with the payload of everything that is emitted to *topic*.

        Args:
            topic: Begins with a letter or digit and has at most 128 letters, digits and
                `. _ : / @ -`. Put your extension's name in front: `notes/saved`.
            handler: Sync or async, with one argument. What it returns is ignored.
            source: Who brings it, for reports.

        Returns:
            A function that takes the handler out again; calling it twice does no harm.

        Raises:
            UsageError: `invalid_name`, `invalid_handler`, or `too_many_handlers`.
        """
        check_subscription(topic, handler)
        if sum(map(len, self._handlers.values())) >= self._max_handlers:
            raise UsageError(
                f"The event bus has {self._max_handlers} handlers, its most; {source!r} cannot add "
                f"one for {topic!r}. Raise max_handlers, or unsubscribe what is not needed.",
                code="too_many_handlers",
                details={"limit": self._max_handlers},
            )
        added = _Handler(handler, source)
        self._handlers[topic] = (*self._handlers.get(topic, ()), added)

        def unsubscribe() -> None:
            left = tuple(each for each in self._handlers.get(topic, ()) if each is not added)
            if left:
                self._handlers[topic] = left
            else:
                self._handlers.pop(topic, None)

        return unsubscribe

    async def emit(self, topic: str, payload: Any = None) -> tuple[HandlerFailure, ...]:
        """Call the handlers of *topic*, in the order in which they subscribed.

        Each gets a copy of the dictionaries, lists and structs in *payload*; other objects are
        shared. One that fails does not stop the others; cancellation does.

        Returns:
            The failures.

        Raises:
            UsageError: `event_loop` when a handler of *topic* emits to it again, or emitting goes
                deeper than `MAX_EMIT_DEPTH`.
        """
        handlers = self._handlers.get(topic)
        if handlers is None:
            return ()
        emission = _Emission(self, topic, _current.get())
        emission.check()
        token = _current.set(emission)
        failures: list[HandlerFailure] = []
        try:
            for each in handlers:
                try:
                    result = each.call(copy_payload(payload))
                    if inspect.isawaitable(result):
                        await result
                except Exception as error:  # noqa: BLE001 - a handler may fail in any way
                    failure = HandlerFailure(topic=topic, source=each.source, error=error)
                    failures.append(failure)
                    if self._on_failure is not None:
                        self._on_failure(failure)
        finally:
            emission.active = False
            _current.reset(token)
        return tuple(failures)


class _Handler:
    """One subscription; told apart by identity, since a handler may stand twice."""

    __slots__ = ("call", "source")

    def __init__(self, call: Callable[[Any], Any], source: str) -> None:
        self.call = call
        self.source = source


class _Emission:
    """A topic whose handlers are being called."""

    __slots__ = ("active", "bus", "outer", "topic")

    def __init__(self, bus: ExtensionEventBus, topic: str, outer: _Emission | None) -> None:
        self.bus = bus
        self.topic = topic
        self.active = True
        # A task that a handler started has its context for life, and is in no handler any more.
        self.outer: _Emission | None = outer if outer is None or outer.active else None

    def check(self) -> None:
        chain: list[_Emission] = []
        outer = self.outer
        while outer is not None:
            chain.append(outer)
            outer = outer.outer
        again = any(each.bus is self.bus and each.topic == self.topic for each in chain)
        if again or len(chain) >= MAX_EMIT_DEPTH:
            way = " → ".join([*(each.topic for each in reversed(chain)), self.topic])
            raise UsageError(
                f"Emitting goes round in handlers: {way}. A handler must not emit to its own "
                f"topic, nor deeper than {MAX_EMIT_DEPTH} handlers.",
                code="event_loop",
                details={"limit": MAX_EMIT_DEPTH},
            )


_current: Final[ContextVar[_Emission | None]] = ContextVar("prism_emission", default=None)


def check_subscription(topic: str, handler: object) -> None:
    """Return only when *handler* could subscribe to *topic*.

    Raises:
        UsageError: `invalid_name` or `invalid_handler`.
    """
    if not is_name(topic):
        raise UsageError(
            f"The name of a topic {NAME_RULE}: {str(topic)[:80]!r} is none.", code="invalid_name"
        )
    if not callable(handler):
        raise UsageError(
            f"A handler must be callable, not {type(handler).__name__}.", code="invalid_handler"
        )

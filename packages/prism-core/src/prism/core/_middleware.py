"""Middleware: who is called at which hook, in which order, and what happens when one fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

from prism.core._contracts import HOOKS, Middleware, MiddlewareFailure, MiddlewarePolicy, Next
from prism.core._errors import MiddlewareError, UsageError

P = TypeVar("P", bound=msgspec.Struct)

Handler: TypeAlias = Middleware | Callable[[Any], Any] | Callable[[Any, Next], Any]
"""What `MiddlewareRegistry.use` takes: a sync or async function of one or two arguments."""

_POLICIES: Final = ("event", "throw")


class MiddlewareInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a registry tells about one middleware.

    Attributes:
        order: Lower numbers run first; equal ones in the order of registration.
        policy: What its failure does.
    """

    hook: str
    name: str
    order: int
    policy: MiddlewarePolicy


class _Step:
    """One registered middleware; told apart by identity, since a handler may stand twice."""

    __slots__ = ("handler", "info", "takes_next")

    def __init__(self, handler: Handler, info: MiddlewareInfo, *, takes_next: bool) -> None:
        self.handler: Callable[..., Any] = handler
        self.info = info
        self.takes_next = takes_next


class MiddlewareRegistry:
    """Middleware by hook. It has an effect only on the agents that are given the registry.

    Args:
        policy: What a failure does when the middleware was registered without a policy of its
            own. `event` (default): it is reported, its change is dropped, and the run goes on, as
            a middleware that only watches should. `throw`: the run fails, as it should when a
            middleware guards something.
    """

    __slots__ = ("_policy", "_steps")

    def __init__(self, *, policy: MiddlewarePolicy = "event") -> None:
        self._policy: MiddlewarePolicy = _checked_policy(policy)
        # Tuples, so that a run keeps the steps that it began with.
        self._steps: dict[str, tuple[_Step, ...]] = {}

    def use(
        self,
        hook: str,
        handler: Handler,
        *,
        name: str | None = None,
        order: int = 0,
        policy: MiddlewarePolicy | None = None,
    ) -> Callable[[], None]:
        """Call *handler* at *hook* from the next run of that hook on.

        Args:
            hook: One of `HOOKS`.
            handler: Sync or async. It takes the payload, a copy, and returns one of the same
                type, or `None` to leave it as it was. One that requires a second argument gets
                `next`, which runs the rest of the chain once and gives its result; what it then
                returns is the chain's result (`None`: what `next` gave). When it returns without
                having called `next`, the rest of the chain is skipped.
            name: For reports; default: the handler's own name.
            order: Lower numbers run first; equal ones in the order of registration.
            policy: Overrides the registry's.

        Returns:
            A function that takes the handler out again. Calling it twice does no harm; a chain
            that is under way is not changed.

        Raises:
            UsageError: `unknown_hook`, listing the known ones; `invalid_handler`.
        """
        _check_hook(hook)
        if type(order) is not int:
            raise UsageError(f"order must be an integer, not {order!r}.")
        step = _Step(
            handler,
            MiddlewareInfo(
                hook=hook,
                name=name or str(getattr(handler, "__qualname__", type(handler).__qualname__)),
                order=order,
                policy=self._policy if policy is None else _checked_policy(policy),
            ),
            takes_next=_takes_next(handler),
        )
        steps = (*self._steps.get(hook, ()), step)
        self._steps[hook] = tuple(sorted(steps, key=lambda each: each.info.order))

        def unsubscribe() -> None:
            self._steps[hook] = tuple(each for each in self._steps[hook] if each is not step)

        return unsubscribe

    def has(self, hook: str) -> bool:
        """Whether anything is registered at *hook*; if not, a payload need not be made."""
        _check_hook(hook)
        return bool(self._steps.get(hook))

    def list(self, hook: str | None = None) -> tuple[MiddlewareInfo, ...]:
        """What is registered at *hook*, or everywhere, in the order in which it is called."""
        if hook is not None:
            _check_hook(hook)
        hooks = HOOKS if hook is None else (hook,)
        return tuple(step.info for each in hooks for step in self._steps.get(each, ()))

    async def run(
        self,
        hook: str,
        payload: P,
        *,
        on_failure: Callable[[MiddlewareFailure], None] | None = None,
    ) -> P:
        """Send *payload* through the chain of *hook*.

        Every handler gets a copy, and what it returns is copied, so that neither the caller's
        data nor the result changes when a handler keeps a list and changes it. A handler that
        fails under `event` leaves the payload as it was before; the chain goes on behind it,
        unless it had already run within `next`: then its result stands.

        Args:
            hook: One of `HOOKS`.
            payload: The struct of that hook.
            on_failure: Told of each failure under `event`; without it these are dropped.

        Returns:
            The payload; the same object when no handler changed it.

        Raises:
            UsageError: `unknown_hook`.
            MiddlewareError: A handler failed under `throw`; the cause is the handler's exception.
        """
        steps = self._steps.get(hook, ())
        if not steps:
            _check_hook(hook)
            return payload
        chain = _Chain(steps, type(payload), on_failure)
        result: P = await chain.run(0, payload)
        return result


class _Chain:
    """One run of one hook."""

    __slots__ = ("_kind", "_on_failure", "_steps", "_thrown")

    def __init__(
        self,
        steps: tuple[_Step, ...],
        kind: type[msgspec.Struct],
        on_failure: Callable[[MiddlewareFailure], None] | None,
    ) -> None:
        self._steps = steps
        self._kind = kind
        self._on_failure = on_failure
        self._thrown: MiddlewareError | None = None

    async def run(self, first: int, payload: Any) -> Any:
        for position in range(first, len(self._steps)):
            step = self._steps[position]
            if step.takes_next:
                return await self._wrap(step, position, payload)
            try:
                result = step.handler(copy_payload(payload))
                if inspect.isawaitable(result):
                    result = await result
                payload = self._accept(result, payload)
            except Exception as error:  # noqa: BLE001 - a handler may fail in any way
                self._fail(step, error)
        return payload

    async def _wrap(self, step: _Step, position: int, payload: Any) -> Any:
        """Run a handler that decides itself when the rest of the chain runs."""
        rest = _Rest(self, position + 1)
        result = payload
        try:
            returned = step.handler(copy_payload(payload), rest)
            if inspect.isawaitable(returned):
                returned = await returned
            result = self._accept(returned, rest.result if rest.done else payload)
        except Exception as error:  # noqa: BLE001 - a handler may fail in any way
            if self._thrown is None:
                self._fail(step, error)
                result = rest.result if rest.done else await self.run(position + 1, payload)
        finally:
            rest.closed = True
        if self._thrown is not None:
            # Also when the handler swallowed it: a guard further in has refused.
            raise self._thrown
        return result

    def _accept(self, result: Any, unchanged: Any) -> Any:
        return unchanged if result is None else copy_payload(self.checked(result))

    def checked(self, result: Any) -> Any:
        if not isinstance(result, self._kind):
            raise TypeError(
                f"must return a {self._kind.__name__} or None, not a {type(result).__name__}"
            )
        return result

    def _fail(self, step: _Step, error: Exception) -> None:
        info = step.info
        if info.policy == "throw":
            self._thrown = MiddlewareError(
                f"Middleware {info.name!r} of hook {info.hook!r} failed: {error}",
                details={"hook": info.hook, "middleware": info.name},
            )
            raise self._thrown from error
        if self._on_failure is not None:
            self._on_failure(MiddlewareFailure(hook=info.hook, name=info.name, error=error))


class _Rest:
    """What a handler gets as `next`."""

    __slots__ = ("_chain", "_first", "called", "closed", "done", "result")

    def __init__(self, chain: _Chain, first: int) -> None:
        self._chain = chain
        self._first = first
        self.called = False
        self.closed = False
        self.done = False
        self.result: Any = None

    async def __call__(self, payload: Any, /) -> Any:
        if self.called:
            raise RuntimeError("next() was called twice; the rest of the chain runs once")
        if self.closed:
            raise RuntimeError("next() was called after its middleware had returned")
        self.called = True
        self.result = await self._chain.run(self._first, copy_payload(self._chain.checked(payload)))
        self.done = True
        return copy_payload(self.result)


def copy_payload(value: Any) -> Any:
    """*value* with its lists and dictionaries copied; other objects are shared."""
    # One frame a level, since JSON may nest as deep as the codec allows.
    kind = type(cast("object", value))
    if kind is dict:
        fields: dict[Any, Any] = {}
        for key, item in value.items():
            fields[key] = copy_payload(item)
        return fields
    if kind is list or kind is tuple:
        items: list[Any] = []
        for item in value:
            items.append(copy_payload(item))  # noqa: PERF401
        return items if kind is list else tuple(items)
    if isinstance(value, msgspec.Struct):
        changes: dict[str, Any] = {}
        for name in value.__struct_fields__:
            item = getattr(value, name)
            new = copy_payload(item)
            if new is not item:
                changes[name] = new
        # A frozen struct without lists and dictionaries cannot be changed in place.
        return msgspec.structs.replace(value, **changes) if changes else value
    return value


def _takes_next(handler: Handler) -> bool:
    if not callable(handler):
        raise UsageError(
            f"A middleware must be callable, not {type(handler).__name__}.", code="invalid_handler"
        )
    try:
        parameters = inspect.signature(handler).parameters.values()
    except ValueError:  # a function of an extension module does not say
        return False
    # A default value says that the argument is the handler's own.
    required = [
        each
        for each in parameters
        if each.default is each.empty
        and each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}
    ]
    if len(required) > 2:
        raise UsageError(
            f"A middleware takes the payload, or the payload and next; this one takes "
            f"{len(required)} arguments.",
            code="invalid_handler",
        )
    return len(required) == 2


def _checked_policy(policy: MiddlewarePolicy) -> MiddlewarePolicy:
    if policy not in _POLICIES:
        raise UsageError(f"policy must be 'event' or 'throw', not {policy!r}.")
    return policy


def _check_hook(hook: str) -> None:
    if hook not in HOOKS:
        raise UsageError(
            f"Unknown hook {hook!r}; the hooks are {', '.join(HOOKS)}.",
            code="unknown_hook",
            details={"hooks": list(HOOKS)},
        )

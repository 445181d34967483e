"""Facts that the model has beside the conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from prism.core._contracts import ContextProvider, ContextRequest
from prism.core._errors import RegistryError, UsageError
from prism.core._wire import ContentBlock, TextBlock
from prism.core.prompt._blocks import GIVEN_KINDS, is_given_block


class StaticContext:
    """A context provider with one fixed text.

    Args:
        name: Told apart by.
        text: What the model reads; a blank one gives no block.
    """

    __slots__ = ("_blocks", "name")

    def __init__(self, name: str, text: str) -> None:
        self.name: str = name
        self._blocks: tuple[ContentBlock, ...] = (TextBlock(text=text),) if text.strip() else ()

    async def provide(self, request: ContextRequest) -> Sequence[ContentBlock]:
        """The same block each time."""
        return self._blocks

    def __repr__(self) -> str:
        return f"StaticContext({self.name!r})"


class OptionalContext:
    """A context provider whose failure costs its blocks and not the run.

    Args:
        provider: The one that may fail.
        on_error: Called with its name and the exception, so that nothing fails unseen. What it
            raises fails the run.
    """

    __slots__ = ("_on_error", "_provider")

    def __init__(
        self, provider: ContextProvider, *, on_error: Callable[[str, Exception], None]
    ) -> None:
        self._provider = provider
        self._on_error = on_error

    @property
    def name(self) -> str:
        """The provider's own."""
        return self._provider.name

    async def provide(self, request: ContextRequest) -> Sequence[ContentBlock]:
        """The provider's blocks, or none when it fails."""
        try:
            return _checked(self.name, await self._provider.provide(request))
        except Exception as error:  # noqa: BLE001  # to stand between it and the run is the job
            self._on_error(self.name, error)
            return ()

    def __repr__(self) -> str:
        return f"OptionalContext({self._provider!r})"


async def resolve_context(
    providers: Iterable[ContextProvider], request: ContextRequest
) -> list[ContentBlock]:
    """Ask every provider once, one after the other, in the order of registration.

    One after the other, because the order of the blocks is part of the prompt and a provider may
    rely on an earlier one having run.

    Args:
        providers: In the order in which the model reads their blocks.
        request: What each may know.

    Returns:
        All blocks: texts, images and vendors' own items.

    Raises:
        RegistryError: `duplicate_name`, before any provider is asked.
        UsageError: `invalid_context`, when a provider gives something else than such blocks.
        Exception: what a provider raised, with a note that names it. `OptionalContext` keeps a
            failure from the run.
    """
    asked = list(providers)
    seen: set[str] = set()
    for provider in asked:
        if provider.name in seen:
            raise RegistryError(
                f"Two context providers are named {provider.name!r}; give one another name.",
                code="duplicate_name",
                details={"name": provider.name},
            )
        seen.add(provider.name)
    blocks: list[ContentBlock] = []
    for provider in asked:
        try:
            given = await provider.provide(request)
        except Exception as error:
            error.add_note(f"Raised by the context provider {provider.name!r}.")
            raise
        blocks.extend(_checked(provider.name, given))
    return blocks


def _checked(name: str, given: object) -> list[ContentBlock]:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise _invalid(name, given)
    blocks: list[ContentBlock] = []
    for item in cast("Sequence[object]", given):
        if not is_given_block(item):
            raise _invalid(name, item)
        blocks.append(item)
    return blocks


def _invalid(name: str, value: object) -> UsageError:
    return UsageError(
        f"Context provider {name!r} gave {type(value).__name__}; it has to return a sequence of "
        f"{GIVEN_KINDS}.",
        code="invalid_context",
        details={"name": name},
    )

"""What an extension is to the kernel."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Extension(Protocol):
    """A named set of contributions. Setting it up registers them and starts nothing."""

    @property
    def name(self) -> str:
        """Unique in a kernel."""
        ...

    @property
    def requires(self) -> Sequence[str]:
        """Names of extensions that must be loaded before."""
        ...

    def setup(self, api: Any, /) -> Awaitable[None] | None:
        """Register contributions on *api* (an `ExtensionApi`)."""
        ...

"""Every runtime test runs on asyncio and on trio, in virtual time, under the event laws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio.testing
from trio._core import _run as trio_run  # pyright: ignore[reportPrivateUsage]

from .harness import Stage, VirtualLoop


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Both event loops; a sleep takes no time, and happens when nothing else does."""
    if request.param == "asyncio":
        return "asyncio", {"loop_factory": VirtualLoop}
    # trio shuffles the tasks that are ready; each test gets the same orders in every run.
    trio_run._r.seed(request.node.name)  # pyright: ignore[reportPrivateUsage]
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Agents and sessions whose every event and entry is checked."""
    made = Stage()
    yield made
    made.finish()

"""Peak memory in KiB of a process that holds many sessions at work: `ours`, or `none`."""

from __future__ import annotations

import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from prism.core import Agent, ModelConfig
from prism.core.providers import ProviderEvent, ProviderRequest, done, text_delta
from prism.core.stores import MemorySessionStore

SESSIONS = 1_000


class Waiting:
    """A provider whose answers begin at once and end together."""

    id = "waiting"

    def __init__(self) -> None:
        self.begun = 0
        self.all_begun = anyio.Event()

    async def generate(self, request: ProviderRequest) -> AsyncIterator[ProviderEvent]:
        """One answer."""
        yield text_delta("token ")
        self.begun += 1
        if self.begun == SESSIONS:
            self.all_begun.set()
        await self.all_begun.wait()
        yield done()


async def main(kind: str) -> None:
    """Hold the sessions, or only what they are made of."""
    agent = Agent(
        model=ModelConfig(provider="waiting", model="m"),
        provider=Waiting(),
        store=MemorySessionStore(),
    )
    if kind == "ours":
        async with anyio.create_task_group() as group:
            for number in range(SESSIONS):
                group.start_soon(agent.session(f"s{number}").run, "Hi")


def peak_kib() -> int:
    """This process's own peak; `getrusage` would also count what it was forked from."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
    print(peak_kib())

"""Our adapters and the scripted provider keep the contract; broken ones are found out."""

from __future__ import annotations

import anyio
import pytest

from prism.core.testing import ProviderCase, provider_cases, run_provider_case

from .loopback import Server
from .vendors import ADAPTERS, HttpVendor, http_harness, memory_harness, without

IN_MEMORY = [
    pytest.param(name, case, id=f"{name}-{case}")
    for name in ADAPTERS
    for case in provider_cases(*without(name))
]


@pytest.mark.parametrize(("name", "case"), IN_MEMORY)
async def test_an_adapter_keeps_the_contract(name: str, case: ProviderCase) -> None:
    await run_provider_case(case, memory_harness(name))


@pytest.mark.parametrize("case", provider_cases(), ids=str)
async def test_an_adapter_keeps_the_contract_over_real_http(case: ProviderCase) -> None:
    vendor = HttpVendor(ADAPTERS["openai-chat"][1])
    server = Server(vendor.respond)
    async with anyio.create_task_group() as tasks:
        await server.start(tasks)
        await run_provider_case(case, http_harness("openai-chat", vendor, server.url))
        tasks.cancel_scope.cancel()

"""Secrets, hooks and the log."""

from __future__ import annotations

from typing import Any

import pytest

from prism.core import (
    CustomEntry,
)
from prism.core.providers import error
from prism.memory.observational import (
    MemoryHooks,
    ObservationalMemory,
    WorkerJob,
    WorkerOutput,
    fold_ledger,
    memory_status,
)

from .workers import (
    Heard,
    Workers,
    entry_ids,
    is_first,
    memory_of,
    note,
    observe,
    session_of,
)

SECRET = "hunter2-" + "x" * 12


async def contents(memory: ObservationalMemory) -> list[str]:
    ledger = fold_ledger(await memory.session.entries())
    return [one.content for one in ledger.observations]


async def test_a_secret_is_in_no_prompt_record_error_event_or_log(tmp_path: Any) -> None:
    log = tmp_path / "memory.ndjson"
    session = session_of()
    await session.run(f"The key is {SECRET}.")
    heard = Heard()

    def answer(request: Any) -> list[Any]:
        if is_first(request):
            return observe(note(f"the key {SECRET}", entry_ids(request)[0]))
        return [error(f"refused {SECRET}", code="not_found")]

    provider = Workers(answer)
    memory = memory_of(session, provider, secrets=[SECRET], on_event=heard, debug_log=str(log))
    result = await memory.flush()
    shown = str(provider.requests[0].messages)
    records = [entry.data for entry in await session.entries() if isinstance(entry, CustomEntry)]
    for text in (shown, str(records), str(result), str(heard.events), log.read_text("utf-8")):
        assert SECRET not in text
    assert "[REDACTED]" in str(records)
    status = await memory.status()
    assert SECRET not in str(status)


async def test_the_log_holds_events_counts_ids_and_errors_and_no_contents(tmp_path: Any) -> None:
    log = tmp_path / "memory.ndjson"
    session = session_of()
    await session.run("The port is 8080.")
    memory = memory_of(session, debug_log=str(log))
    await memory.flush()
    text = log.read_text("utf-8")
    assert '"event":"observer.recorded"' in text
    assert '"coversUpToId":"entry_' in text
    assert "8080" not in text
    assert "fact of" not in text
    nowhere = memory_of(session, debug_log=str(tmp_path / "missing" / "x.ndjson"))
    assert (await nowhere.flush()).ran


async def test_a_hook_sees_the_job_and_may_change_or_stop_it() -> None:
    session = session_of()
    await session.run("a")
    jobs: list[WorkerJob] = []

    async def before(job: WorkerJob) -> WorkerJob:
        jobs.append(job)
        return WorkerJob(
            worker=job.worker,
            session_id=job.session_id,
            system="Other.",
            prompt=job.prompt,
            source_entry_ids=job.source_entry_ids,
        )

    provider = Workers()
    await memory_of(session, provider, hooks=MemoryHooks(before=before)).flush()
    assert provider.requests[0].system == ("Other.",)
    assert len(jobs[0].source_entry_ids) == 2
    await session.run("b")

    def stop(_job: WorkerJob) -> bool:
        return False

    stopped = memory_of(session, Workers(), hooks=MemoryHooks(before=stop))
    result = await stopped.flush()
    assert (result.observer.status, result.observer.reason) == ("skipped", "hook")


async def test_a_hook_may_redact_or_take_out_what_is_about_to_be_recorded() -> None:
    from msgspec.structs import replace

    session = session_of()
    await session.run("a")

    def after(output: WorkerOutput) -> WorkerOutput:
        first, *_ = output.observations
        return replace(output, observations=(replace(first, content="reviewed"),))

    memory = memory_of(session, hooks=MemoryHooks(after=after))
    await memory.flush()
    assert await contents(memory) == ["reviewed"]
    ledger = fold_ledger(await session.entries())
    assert ledger.malformed == 0
    assert memory_status(await session.entries()).tokens_to_observe == 0


async def test_a_hook_that_fails_fails_the_worker_and_nothing_is_stored() -> None:
    session = session_of()
    await session.run("a")

    def broken(_payload: Any) -> None:
        raise RuntimeError("the reviewer is out")

    def three(_output: WorkerOutput) -> int:
        return 3

    for hooks in (
        MemoryHooks(before=broken),
        MemoryHooks(after=broken),
        MemoryHooks(after=three),
    ):
        result = await memory_of(session, hooks=hooks).flush()
        assert result.observer.error is not None
        assert result.observer.error.code == "hook_failed"
    assert fold_ledger(await session.entries()).observations == ()


async def test_a_store_that_fails_is_a_failure_of_the_worker() -> None:
    from prism.core import StoreError

    session = session_of()
    await session.run("a")
    memory = memory_of(session)

    async def broken(*_: Any, **__: Any) -> None:
        raise StoreError("the disk is full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "append_custom", broken)
        result = await memory.flush()
    assert result.observer.error is not None
    assert result.observer.error.code == "store_error"


async def test_a_log_that_is_full_is_put_aside(tmp_path: Any) -> None:
    log = tmp_path / "memory.ndjson"
    session = session_of()
    await session.run("a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prism.memory.observational._runtime.debug_log.MAX_LOG_BYTES", 10)
        memory = memory_of(session, debug_log=str(log))
        await memory.flush()
        await session.run("b")
        await memory.flush()
    assert (tmp_path / "memory.ndjson.1").exists()
    assert log.read_text("utf-8").count("\n") == 1

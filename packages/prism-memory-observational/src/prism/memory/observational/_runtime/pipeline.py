"""One flush: observe, reflect, drop, in that order, whatever happens in it."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from prism.core import ErrorInfo, error_info
from prism.memory.observational._runtime.results import NOT_DUE, FlushResult, WorkerResult
from prism.memory.observational._runtime.roles import WORKERS, Missing
from prism.memory.observational._runtime.stage import Office
from prism.memory.observational._runtime.stages import DropStage, ObserveStage, ReflectStage
from prism.memory.observational._settings import ObservationalMemorySettings
from prism.memory.observational._workers.engine import bounded_error


async def run_stages(
    office: Office, settings: ObservationalMemorySettings, *, force: bool
) -> FlushResult:
    """Let each worker do what is due. What a stage recorded stays, also when it breaks off."""
    results: dict[str, WorkerResult] = dict.fromkeys(WORKERS, NOT_DUE)
    worker = WORKERS[0]
    try:
        observe = ObserveStage(office, settings, force=force)
        results[worker] = await _stage(office, settings, observe)
        if _broke(results[worker]):
            return _flushed(results, None)
        worker = "reflector"
        reflect = ReflectStage(office, settings, force=force)
        results[worker] = await _stage(office, settings, reflect)
        worker = "dropper"
        drop = DropStage(office, settings, force=force)
        drop.reflected = results["reflector"]
        results[worker] = await _stage(office, settings, drop)
    except Missing as missing:
        results[worker] = WorkerResult(status="skipped", reason=missing.reason)
        return _flushed(results, missing.reason)
    return _flushed(results, None)


async def _stage(
    office: Office,
    settings: ObservationalMemorySettings,
    stage: ObserveStage | ReflectStage | DropStage,
) -> WorkerResult:
    """A stage's result.

    Raises:
        Missing: It has no model or no credential.
    """
    try:
        return await stage.run()
    except Missing:
        raise
    except Exception as error:  # noqa: BLE001 - a worker never takes its host down
        info = bounded_error(error_info(error, redact=office.redactor.redact_text))
    return _failed(office, settings, stage.worker, info)


def _failed(
    office: Office, settings: ObservationalMemorySettings, worker: str, info: ErrorInfo
) -> WorkerResult:
    office.change(worker, last_error=info)
    office.breaker.failed(
        monotonic(), after=settings.breaker_failures, cooldown_ms=settings.breaker_cooldown_ms
    )
    return WorkerResult(status="failed", error=info)


def _flushed(results: Mapping[str, WorkerResult], reason: str | None) -> FlushResult:
    ran = any(one.status not in {"not_due", "skipped"} for one in results.values())
    return FlushResult(
        ran=ran or reason is None,
        reason=reason,
        observer=results["observer"],
        reflector=results["reflector"],
        dropper=results["dropper"],
    )


def _broke(result: WorkerResult) -> bool:
    return result.status in {"failed", "skipped"} or result.error is not None


def monotonic() -> float:
    """Seconds of the event loop's clock; outside of one nothing is waiting."""
    try:
        return anyio.current_time()
    except RuntimeError:
        return float("inf")

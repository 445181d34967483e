"""How a session's memory stands, as data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from prism.core import CompactionData, CompactionEntry, ErrorInfo, SessionEntry
from prism.core.compaction import latest_compaction
from prism.memory.observational._ledger import Ledger
from prism.memory.observational._projection import build_projection
from prism.memory.observational._records import Observation, Reflection
from prism.memory.observational._settings import ObservationalMemorySettings
from prism.memory.observational._sources import is_source, source_tokens


class WorkerState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a runtime knows of one worker.

    Attributes:
        model: `provider/model`; `None` when it has none.
        last_success_at: ISO-8601 with offset.
        last_skip_reason: Why it last did not run although it was due.
        last_error: How it last failed; gone after a success.
    """

    model: str | None = None
    last_success_at: str | None = None
    last_skip_reason: str | None = None
    last_error: ErrorInfo | None = None


class RuntimeState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a runtime is doing.

    Attributes:
        in_flight: The worker that runs now.
        breaker_open: Whether flushes stop for a while after failures.
        attached: Whether it follows the session.
        last_compaction_error: How the compaction of `attach()` last failed.
        workers: By name.
    """

    in_flight: str | None = None
    breaker_open: bool = False
    attached: bool = False
    last_compaction_error: ErrorInfo | None = None
    workers: Mapping[str, WorkerState] = {}


class MemoryStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the memory of a branch stands. Tokens are estimates, by the same clock as the workers'.

    Attributes:
        dropped: Observations that were taken out of the pool.
        active: Recorded and not dropped.
        visible: What the model sees of them now.
        added_observations: In use, but not yet visible.
        removed_observations: Visible, but dropped meanwhile.
        visible_reflections: What the model sees of them now.
        superseded_reflections: Out of use.
        added_reflections: In use, but not yet visible.
        pool_tokens: Of the active observations.
        visible_tokens: Of the visible ones.
        reflection_tokens: Of the reflections in use.
        tokens_to_observe: New source tokens since the observer last came through.
        tokens_to_reflect: New source tokens since the reflector did.
        tokens_to_compact: New source tokens since the last compaction.
        compact_after_tokens: When `attach()` compacts.
        malformed: Items and records that could not be understood.
        unsupported: Records of a newer version.
        dangling: Ledger entries whose marker names no entry of the branch.
        uncovered: Sources that the model sees neither raw nor through memory.
        uncovered_tokens: Of these.
        stale: Whether another strategy has compacted since memory was last shown.
        runtime: What the runtime is doing, when there is one.
    """

    recorded: int
    dropped: int
    active: int
    visible: int
    added_observations: int
    removed_observations: int
    reflections: int
    visible_reflections: int
    superseded_reflections: int
    added_reflections: int
    pool_tokens: int
    pool_max_tokens: int
    pool_target_tokens: int
    visible_tokens: int
    reflection_tokens: int
    tokens_to_observe: int
    observe_after_tokens: int
    tokens_to_reflect: int
    reflect_after_tokens: int
    tokens_to_compact: int
    compact_after_tokens: int
    malformed: int
    unsupported: int
    dangling: tuple[str, ...]
    uncovered: tuple[str, ...]
    uncovered_tokens: int
    passive: bool
    stale: bool
    runtime: RuntimeState | None = None


def tokens_since_compaction(path: list[SessionEntry]) -> int:
    """Estimated tokens of the sources that came after the latest compaction on the path."""
    for place in range(len(path) - 1, -1, -1):
        if isinstance(path[place], CompactionEntry):
            return source_tokens(path, after=place)
    return source_tokens(path)


def uncovered_now(path: list[SessionEntry], ledger: Ledger) -> list[str]:
    """Sources that the model sees neither raw nor through memory."""
    compacted = latest_compaction(path)
    if compacted is None:
        return []
    data = CompactionData.from_entry(compacted.entry)
    if data is None or data.memory is None:
        return []  # another strategy's summary covers them
    return [
        path[place].id
        for place in range(ledger.observed.place + 1, compacted.through + 1)
        if place not in compacted.keep and is_source(path[place])
    ]


def memory_status(
    entries: Iterable[SessionEntry],
    settings: ObservationalMemorySettings | None = None,
    *,
    runtime: RuntimeState | None = None,
    compact_after_tokens: int | None = None,
) -> MemoryStatus:
    """How the memory of a branch stands.

    Args:
        entries: One path, from the root to the leaf.
        settings: Default: the defaults.
        runtime: What the runtime is doing.
        compact_after_tokens: When `attach()` compacts; default: the settings' own.
    """
    path = entries if isinstance(entries, list) else list(entries)
    chosen = settings or ObservationalMemorySettings()
    found = build_projection(path)
    ledger, visible = found.ledger, found.visible
    uncovered = uncovered_now(path, ledger)
    gone = frozenset(uncovered)
    return MemoryStatus(
        recorded=len(ledger.observations),
        dropped=len(ledger.dropped_ids),
        active=len(ledger.active_observations),
        visible=len(visible.observations) if visible else 0,
        added_observations=found.added_observations,
        removed_observations=found.removed_observations,
        reflections=len(ledger.reflections),
        visible_reflections=len(visible.reflections) if visible else 0,
        superseded_reflections=len(ledger.superseded),
        added_reflections=found.added_reflections,
        pool_tokens=ledger.pool_tokens,
        pool_max_tokens=chosen.observations_pool_max_tokens,
        pool_target_tokens=chosen.observations_pool_target_tokens,
        visible_tokens=int(sum(one.token_count for one in visible.observations)) if visible else 0,
        reflection_tokens=int(sum(one.token_count for one in ledger.active_reflections)),
        tokens_to_observe=source_tokens(path, after=ledger.observed.place),
        observe_after_tokens=chosen.observe_after_tokens,
        tokens_to_reflect=source_tokens(path, after=ledger.reflected.place),
        reflect_after_tokens=chosen.reflect_after_tokens,
        tokens_to_compact=tokens_since_compaction(path),
        compact_after_tokens=compact_after_tokens or chosen.compact_after_tokens,
        malformed=ledger.malformed,
        unsupported=ledger.unsupported,
        dangling=ledger.dangling,
        uncovered=tuple(uncovered),
        uncovered_tokens=source_tokens([entry for entry in path if entry.id in gone]),
        passive=chosen.passive,
        stale=found.stale is not None,
        runtime=runtime,
    )


def status_text(status: MemoryStatus) -> str:
    """The status for people."""
    lines: list[str] = []
    if status.passive:
        lines += ["Mode: passive. Nothing is recorded by itself; recall and compaction work.", ""]
    seen = f"{status.active:,} active / {status.visible:,} visible"
    drift = _drift(status.added_observations, status.removed_observations)
    used = f"{status.superseded_reflections:,} superseded / {status.visible_reflections:,} visible"
    used += _drift(status.added_reflections, 0)
    lines += [
        "Memory",
        f"Observations: {status.recorded:,} recorded / {status.dropped:,} dropped / {seen}{drift}",
        f"Reflections: {status.reflections:,} recorded / {used}",
        "",
        "Activity",
        _progress("Next observation", status.tokens_to_observe, status.observe_after_tokens),
        _progress("Next reflection", status.tokens_to_reflect, status.reflect_after_tokens),
        _progress("Next compaction", status.tokens_to_compact, status.compact_after_tokens),
        _progress("Visible observations", status.visible_tokens, status.pool_max_tokens),
        _progress("Active observations", status.pool_tokens, status.pool_target_tokens, "target "),
        f"Reflections in use: ~{status.reflection_tokens:,} tokens",
    ]
    problems = _problems(status)
    if problems:
        lines += ["", "Attention", *problems]
    if status.runtime is not None:
        lines += ["", "Workers", *_workers(status.runtime)]
    return "\n".join(lines)


def _drift(added: int, removed: int) -> str:
    return (f" +{added}" if added else "") + (f" -{removed}" if removed else "")


def _progress(label: str, value: int, limit: int, note: str = "") -> str:
    percent = round(100 * value / limit) if limit else 0
    return f"{label}: ~{value:,} / {limit:,} {note}tokens ({percent}%)"


def _problems(status: MemoryStatus) -> list[str]:
    lines: list[str] = []
    if status.stale:
        lines.append("Another strategy has compacted since: the model does not see this memory.")
    if status.uncovered:
        lines.append(
            f"Uncovered: {len(status.uncovered):,} entries (~{status.uncovered_tokens:,} tokens) "
            "are neither shown nor observed."
        )
    if status.malformed:
        lines.append(f"Malformed: {status.malformed:,} items or records.")
    if status.unsupported:
        lines.append(f"Unsupported: {status.unsupported:,} records of a newer version.")
    if status.dangling:
        lines.append(f"Dangling: {len(status.dangling):,} records ({_some(status.dangling)}).")
    return lines


def _some(ids: tuple[str, ...]) -> str:
    shown = ", ".join(ids[:3])
    return shown if len(ids) <= 3 else f"{shown}, …"


def _workers(state: RuntimeState) -> list[str]:
    lines: list[str] = []
    for name, worker in state.workers.items():
        parts = [worker.model or "no model"]
        if state.in_flight == name:
            parts.append("running")
        if worker.last_success_at:
            parts.append(f"last success {worker.last_success_at}")
        if worker.last_skip_reason:
            parts.append(f"skipped: {worker.last_skip_reason}")
        if worker.last_error is not None:
            parts.append(f"last error: {worker.last_error.message}")
        lines.append(f"{name}: {'; '.join(parts)}")
    if state.breaker_open:
        lines.append("Paused after failures in a row.")
    if state.last_compaction_error is not None:
        lines.append(f"Last compaction failed: {state.last_compaction_error.message}")
    return lines


def view_text(
    observations: Iterable[Observation], reflections: Iterable[Reflection], what: str
) -> str:
    """Memory for people, in the lines of the summary."""
    first = [one.line for one in reflections] or [f"No {what} reflections."]
    second = [one.line for one in observations] or [f"No {what} observations."]
    return "\n".join(["Reflections", *first, "", "Observations", *second])


def status_value(status: MemoryStatus) -> dict[str, Any]:
    """The status as JSON."""
    value: dict[str, Any] = msgspec.to_builtins(status)
    return value

"""One compaction: middleware, strategy, validation, append; and the events around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from prism.core._contracts import (
    CompactionContext,
    CompactionOptions,
    CompactionPayload,
    CompactionRequestPayload,
    CompactionResult,
    CompactionStrategy,
)
from prism.core._errors import CompactionError, NothingToCompact, PrismError
from prism.core._runtime.checks import given
from prism.core._support.errors import error_info, error_text
from prism.core._support.redaction import SecretRedactor
from prism.core._wire import (
    CompactionEntry,
    CompactionFailed,
    CompactionFinished,
    CompactionStarted,
    ErrorInfo,
    UsageReported,
)
from prism.core.compaction import DefaultCompactionStrategy, validate_compaction

if TYPE_CHECKING:
    from prism.core._runtime.run_state import RunState
    from prism.core._runtime.session_base import SessionBase

ABORTED = ErrorInfo(code="aborted", message="The compaction was aborted.")


async def try_compact(
    run: RunState, options: CompactionOptions, *, trigger: str
) -> CompactionResult | None:
    """Compact within a run; a failure is an event, and `None`, and the run goes on."""
    try:
        return await compact_branch(run.session, options, trigger=trigger, run=run)
    except PrismError:
        return None


async def compact_branch(
    session: SessionBase,
    options: CompactionOptions,
    *,
    trigger: str,
    run: RunState | None = None,
) -> CompactionResult:
    """Compact the branch on which the session stands.

    Args:
        session: Nothing else happens on it meanwhile.
        options: The agent's and the caller's, merged.
        trigger: `manual`, `auto`, `overflow` or the host's own.
        run: The run that compacts, if one does; its input stays raw.

    Raises:
        NothingToCompact: The strategy found nothing to fold.
        CompactionError: The strategy failed, or its result broke the contract.
        PrismError: What else came of the middleware or the store.
    """
    work = _Compaction(session, options, trigger, run)
    # Before the first event, so that whoever hears it finds the state true.
    session.is_compacting = True
    try:
        work.say_started()
        result = await work.run()
    except PrismError as error:
        work.say_failed(error_info(error, redact=work.redactor.redact_text))
        raise
    except Exception as error:  # a strategy is the host's code
        failure = CompactionError(
            f"Strategy {work.strategy.name!r} failed: "
            f"{work.redactor.redact_text(error_text(error))}"
        )
        work.say_failed(error_info(failure))
        raise failure from error
    except BaseException:
        work.say_failed(ABORTED)
        raise
    else:
        work.say_finished(result)
        return result
    finally:
        session.is_compacting = False


class _Compaction:
    """What one compaction is made of."""

    def __init__(
        self,
        session: SessionBase,
        options: CompactionOptions,
        trigger: str,
        run: RunState | None,
    ) -> None:
        self._session = session
        self._run = run
        self._trigger = trigger
        self._run_id = None if run is None else run.id
        self.strategy: CompactionStrategy = options.strategy or DefaultCompactionStrategy()
        self.redactor: SecretRedactor = session.redactor.extended(options.secrets)
        self._context = CompactionContext(
            session_id=session.id,
            entries=list(session.log.history.path),
            trigger=trigger,
            run_id=self._run_id,
            protected_entry_ids=() if run is None else tuple(run.input_ids),
            keep_recent_entries=options.keep_recent_entries,
            max_summary_chars=options.max_summary_chars,
            secrets=self.redactor.reveal(),
            instructions=options.instructions,
            metadata=options.metadata,
        )

    async def run(self) -> CompactionResult:
        context = self._context
        payload = await self._session.hook(
            "compaction_request", CompactionRequestPayload(context=context), run=self._run
        )
        shown = given(CompactionContext, payload.context, "compaction_request")
        result = await self.strategy.compact(shown)
        if result is None:
            raise NothingToCompact(
                "Nothing newly leaves the context, so there is nothing to compact."
            )
        result = self._checked(result)
        changed = await self._session.hook(
            "compaction", CompactionPayload(context=context, result=result), run=self._run
        )
        result = given(CompactionResult, changed.result, "compaction")
        # Validated against the branch itself: middleware may have shown the strategy other entries.
        entry = keep_protected(context, validate_compaction(context, result))
        entry = self.redactor.redact_value(entry)
        leaf = context.leaf_id
        # Records that were appended meanwhile are in nobody's way.
        (stored,) = await self._session.log.append(
            [
                (
                    CompactionEntry,
                    {"summary": entry.summary, "data": entry.data, "metadata": entry.metadata},
                )
            ],
            run_id=self._run_id,
            require_on_path=() if leaf is None else (leaf,),
        )
        assert isinstance(stored, CompactionEntry)  # noqa: S101
        if self._run is not None:
            self._run.entry_ids.append(stored.id)
        return structs.replace(result, summary=stored.summary, entries=[stored])

    def _checked(self, result: object) -> CompactionResult:
        if not isinstance(result, CompactionResult):
            raise CompactionError(
                f"Strategy {self.strategy.name!r} gave {type(result).__name__} where a "
                "CompactionResult has to be.",
                code="invalid_compaction",
            )
        return result

    def say_started(self) -> None:
        self._session.emit(
            CompactionStarted(
                session_id=self._session.id,
                run_id=self._run_id,
                trigger=self._trigger,
                strategy=self.strategy.name,
            )
        )

    def say_finished(self, result: CompactionResult) -> None:
        session = self._session
        (entry,) = result.entries
        if result.usage is not None:
            session.emit(
                UsageReported(
                    session_id=session.id,
                    run_id=self._run_id,
                    usage=result.usage,
                    source="compaction",
                )
            )
        session.emit(
            CompactionFinished(
                session_id=session.id,
                run_id=self._run_id,
                trigger=self._trigger,
                strategy=self.strategy.name,
                summary=entry.summary,
                entry_id=entry.id,
                tokens_before=result.tokens_before,
                tokens_after=result.tokens_after,
            )
        )

    def say_failed(self, error: ErrorInfo) -> None:
        self._session.emit(
            CompactionFailed(
                session_id=self._session.id,
                run_id=self._run_id,
                trigger=self._trigger,
                strategy=self.strategy.name,
                error=self.redactor.redact_error(error),
            )
        )


def keep_protected(context: CompactionContext, entry: CompactionEntry) -> CompactionEntry:
    """*entry*, which keeps what is protected also when its strategy does not know of that."""
    data = entry.data or {}
    through = data.get("throughEntryId")
    if through is None or not context.protected_entry_ids:
        return entry
    places = {known.id: place for place, known in enumerate(context.entries)}
    last = places[through]
    keep = set[str](data.get("keepEntryIds") or ())
    missing = {key for key in context.protected_entry_ids if places.get(key, last + 1) <= last}
    if missing <= keep:
        return entry
    data = {**data, "keepEntryIds": sorted(keep | missing, key=places.__getitem__)}
    return msgspec.structs.replace(entry, data=data)

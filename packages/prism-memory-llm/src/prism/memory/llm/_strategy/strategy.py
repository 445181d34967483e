"""From a branch to its compaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Final

import msgspec
from anyio.lowlevel import checkpoint

from prism.core import (
    THINKING_LEVELS,
    CompactionEntry,
    ModelConfig,
    ProviderOptions,
    Secret,
    SecretRedactor,
    UsageError,
    is_thinking_level,
)
from prism.core.compaction import (
    MAX_SUMMARY_CHARS,
    CompactionContext,
    CompactionResult,
)
from prism.core.providers import CredentialRequest, CredentialResolver, RequestPolicy
from prism.memory.llm._file_ops import without_file_blocks
from prism.memory.llm._prepare import DEFAULT_KEEP_RECENT_TOKENS, Preparation, prepare
from prism.memory.llm._prompts import SummaryPrompts
from prism.memory.llm._serialize import DEFAULT_MAX_TOOL_RESULT_CHARS, serialize_entries
from prism.memory.llm._strategy.compose import compose_summary
from prism.memory.llm._strategy.failures import Failures
from prism.memory.llm._strategy.limits import (
    DEFAULT_MAX_ERROR_BYTES,
    DEFAULT_MAX_SUMMARY_TOKENS,
    DEFAULT_RESERVE_TOKENS,
    Limits,
)
from prism.memory.llm._strategy.request import RequestMaker
from prism.memory.llm._strategy.source import ProviderSource, summary_source
from prism.memory.llm._strategy.summarise import Summariser, Task
from prism.memory.llm._tokens import checked_limit, clean_text, is_limit

_HISTORY_SHARE: Final = (4, 5)
_PREFIX_SHARE: Final = (1, 2)
"""Parts of `reserve_tokens` that the two summaries may take."""

_AUTO_SHARE: Final = 10
"""An automatic compaction waits until this part of `keep_recent_tokens` leaves."""


def random_id(prefix: str) -> str:
    return f"{prefix}_{token_hex(10)}"


class LlmCompactionStrategy:
    """Compacts a branch by the summary of a model that the host names.

    One call summarises what leaves the context, together with the summary that was in force; where
    the cut falls inside a turn, another one summarises the beginning of that turn. Only a request
    that is longer than the model's window takes more: it is then summarised in parts, the oldest
    first, in at most `MAX_SUMMARY_CALLS` calls.

    Making the strategy has no effect. It discovers no credential, reads no file, starts no task,
    and holds nothing between compactions, so that sessions can share it.

    Args:
        provider: The provider, or a function that makes one from a resolved credential.
        summary_provider: The same; wins over `provider`.
        model: The session's or the host's model, for when there is no `summary_model`.
        summary_model: The model that writes summaries.
        credential: Resolves the factory's credential, for each compaction anew.
        credential_request: What it is asked for; default: the model's provider, `apiKey`.
        provider_options: Options of each request, such as `cache_retention`. Session id and cache
            key are the agent's session, unless they are given here.
        provider_request_policies: Applied to each request, in order; the last word on its
            `maxTokens`, which is checked afterwards.
        custom_instructions: What the summary should look at, added to the prompts.
        thinking_level: One of `THINKING_LEVELS`; default: what the model does by itself.
        reserve_tokens: Basis of the output budget, to 131,072: a summary gets at most four
            fifths of it, the beginning of a turn half of it.
        keep_recent_tokens: About how much of the newest conversation stays raw, in estimated
            tokens. `keep_recent_entries` of the session's options wins over it.
        max_summary_tokens: Limit of a summary, to 131,072: sent as `maxTokens`, and retained to
            four UTF-16 code units for each. Default 16,384.
        max_output_tokens: Another name of it; `max_summary_tokens` wins.
        max_error_bytes: How much is retained of what a provider, a factory, a policy says when it
            fails, as UTF-8, to 8,192.
        max_tool_result_chars: Results, arguments and thinking above it are shown to the model
            without their middle.
        track_file_operations: Keep the paths of file tools in the entry's data.
        include_file_operations: List them in the summary.
        secrets: Exact strings that are in no request, summary, error and path; the session's own
            are added.
        prompts: Instead of the package's texts.
        name: Stands in the compaction entry and in events.
        clock: Seconds since the epoch, for the entry's timestamp.
        new_id: Makes the entry's id from a prefix.

    Raises:
        UsageError: `no_model_for_use_case`, `missing_provider`, `unknown_thinking_level`,
            `invalid_limit` for a number that is no integer within its cap, `invalid_secret`,
            `invalid_name`, `invalid_params`.
    """

    __slots__ = (
        "_clock", "_focus", "_includes_files", "_limits", "_new_id", "_options", "_policies",
        "_prompts", "_redactor", "_source", "_thinking_level", "_tracks_files", "name",
    )  # fmt: skip

    def __init__(
        self,
        *,
        provider: ProviderSource | None = None,
        summary_provider: ProviderSource | None = None,
        model: ModelConfig | None = None,
        summary_model: ModelConfig | None = None,
        credential: CredentialResolver | None = None,
        credential_request: CredentialRequest | None = None,
        provider_options: ProviderOptions | None = None,
        provider_request_policies: Sequence[RequestPolicy] = (),
        custom_instructions: str | None = None,
        thinking_level: str | None = None,
        reserve_tokens: int = DEFAULT_RESERVE_TOKENS,
        keep_recent_tokens: int = DEFAULT_KEEP_RECENT_TOKENS,
        max_summary_tokens: int | None = None,
        max_output_tokens: int | None = None,
        max_error_bytes: int = DEFAULT_MAX_ERROR_BYTES,
        max_tool_result_chars: int = DEFAULT_MAX_TOOL_RESULT_CHARS,
        track_file_operations: bool = True,
        include_file_operations: bool = True,
        secrets: Sequence[str | Secret] = (),
        prompts: SummaryPrompts | None = None,
        name: str = "llm-compaction",
        clock: Callable[[], float] = time.time,
        new_id: Callable[[str], str] = random_id,
    ) -> None:
        if not name:
            raise UsageError("A compaction strategy needs a name.", code="invalid_name")
        self.name: str = name
        self._source = summary_source(
            provider=provider,
            summary_provider=summary_provider,
            model=model,
            summary_model=summary_model,
            credential=credential,
            credential_request=credential_request,
        )
        self._limits = Limits(
            reserve_tokens=reserve_tokens,
            keep_recent_tokens=keep_recent_tokens,
            max_summary_tokens=_summary_tokens(max_summary_tokens, max_output_tokens),
            max_error_bytes=max_error_bytes,
            max_tool_result_chars=max_tool_result_chars,
        )
        self._thinking_level = _checked_level(thinking_level)
        self._options = provider_options or ProviderOptions()
        self._policies = tuple(provider_request_policies)
        self._focus = custom_instructions
        self._tracks_files = track_file_operations
        self._includes_files = include_file_operations
        self._redactor = SecretRedactor(secrets)
        self._prompts = prompts or SummaryPrompts()
        self._clock = clock
        self._new_id = new_id

    def __repr__(self) -> str:
        model = self._source.model
        return f"{type(self).__name__}({self.name!r}, model={model.provider}/{model.model})"

    async def compact(self, context: CompactionContext) -> CompactionResult | None:
        """The summary entry under the leaf.

        Returns:
            `None` when nothing newly leaves the context, or when the model's summary is so long
            that the context would not become smaller. An automatic compaction also waits until
            what leaves is at least a tenth of `keep_recent_tokens`.

        Raises:
            CompactionError: The provider's own code for what it reported; `invalid_summary` for an
                answer without text, with a call, or refused; `context_overflow` when the window is
                too small also in parts; `stream_truncated`; `event_limit`;
                `invalid_request_option` when a policy made a request that must not be sent.
            UsageError: `invalid_limit` or `invalid_secret`, for an override in *context*.
        """
        await checkpoint()
        max_units = self._limits.max_units
        if context.max_summary_chars is not None:
            max_units = min(
                max_units,
                checked_limit(
                    "max_summary_chars", context.max_summary_chars, cap=MAX_SUMMARY_CHARS
                ),
            )
        failures = Failures(self._redactor.extended(context.secrets), self._limits.max_error_bytes)
        preparation = prepare(
            context.entries,
            keep_recent_tokens=self._limits.keep_recent_tokens,
            keep_recent_entries=context.keep_recent_entries,
            protected_entry_ids=context.protected_entry_ids,
            track_file_operations=self._tracks_files,
            must_shrink=context.trigger == "overflow",
        )
        if preparation is None or self._can_wait(context, preparation):
            return None
        async with self._source.open(failures) as (provider, known):
            redactor = known.redactor
            summariser = Summariser(
                provider=provider,
                requests=RequestMaker(
                    model=self._source.model,
                    api=getattr(provider, "api", None),
                    session_id=context.session_id,
                    run_id=context.run_id,
                    options=self._options,
                    policies=self._policies,
                    thinking_level=self._thinking_level,
                    failures=known,
                ),
                prompts=self._prompts,
                focus=self._focus_of(context, redactor),
                limits=self._limits,
                failures=known,
            )
            history, prefix = await self._summarise(preparation, summariser, redactor)
        files = redactor.redact_value(preparation.files)
        summary, was_cut = compose_summary(
            history=history,
            turn_prefix=prefix,
            turn_heading=self._prompts.turn_heading,
            files=files if self._includes_files else None,
            max_units=max_units,
            redactor=redactor,
        )
        data = preparation.data(
            strategy=self.name, trigger=context.trigger, summary=summary, files=files
        )
        after = data.estimated_tokens_after
        if not summary or after is None or after >= preparation.tokens_before:
            return None
        return CompactionResult(
            summary=summary,
            entries=[
                self._entry(context, summary, data, truncated=was_cut or summariser.truncated)
            ],
            tokens_before=preparation.tokens_before,
            tokens_after=after,
            usage=summariser.usage,
        )

    def _can_wait(self, context: CompactionContext, preparation: Preparation) -> bool:
        """Whether an automatic compaction would pay a model for next to nothing.

        The host's threshold counts entries: once it is reached, each run asks again.
        """
        if context.trigger != "auto" or context.keep_recent_entries is not None:
            return False
        return preparation.tokens_leaving * _AUTO_SHARE < self._limits.keep_recent_tokens

    async def _summarise(
        self, preparation: Preparation, summariser: Summariser, redactor: SecretRedactor
    ) -> tuple[str | None, str | None]:
        """The summaries of the history and of the turn's beginning."""
        previous = None
        if preparation.previous_summary is not None:
            shown = without_file_blocks(preparation.previous_summary)
            previous = clean_text(redactor.redact_text(shown))
        history = self._transcript(preparation.history, redactor)
        request = [] if preparation.turn_request is None else [preparation.turn_request]
        prefix = self._transcript(preparation.turn_prefix, redactor)
        if prefix:
            prefix = [*self._transcript(request, redactor), *prefix]
        if prefix and not history and previous is not None:
            # One summary of both: joined as they are, they would grow with each compaction.
            history, prefix = prefix, []
        old = previous
        if history:
            old = await summariser.summarise(
                Task(
                    transcript=history,
                    previous=previous,
                    initial=self._prompts.initial,
                    max_tokens=self._budget(_HISTORY_SHARE),
                )
            )
        new = None
        if prefix:
            new = await summariser.summarise(
                Task(
                    transcript=prefix,
                    previous=None,
                    initial=self._prompts.turn_prefix,
                    max_tokens=self._budget(_PREFIX_SHARE),
                )
            )
        return old, new

    def _transcript(self, entries: Sequence[Any], redactor: SecretRedactor) -> list[str]:
        return list(
            serialize_entries(
                entries, max_chars=self._limits.max_tool_result_chars, redactor=redactor
            )
        )

    def _focus_of(self, context: CompactionContext, redactor: SecretRedactor) -> str | None:
        texts = [text for text in (self._focus, context.instructions) if text and text.strip()]
        return clean_text(redactor.redact_text("\n".join(texts))) or None

    def _budget(self, share: tuple[int, int]) -> int:
        """`maxTokens` of a request: the smallest of what anybody asks for."""
        model = self._source.model
        asked = [
            self._limits.max_summary_tokens,
            max(1, self._limits.reserve_tokens * share[0] // share[1]),
            None if model.limits is None else model.limits.max_output_tokens,
            (model.parameters or {}).get("maxTokens"),
            (model.parameters or {}).get("max_tokens"),
        ]
        cap = self._limits.max_summary_tokens
        return min((value for value in asked if is_limit(value, cap=cap)), default=1)

    def _entry(
        self, context: CompactionContext, summary: str, data: msgspec.Struct, *, truncated: bool
    ) -> CompactionEntry:
        fields: dict[str, Any] = msgspec.to_builtins(data)
        if truncated:
            fields["truncated"] = True
        now = datetime.fromtimestamp(self._clock(), UTC)
        return CompactionEntry(
            id=self._new_id("entry"),
            session_id=context.session_id,
            timestamp=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            parent_id=context.leaf_id,
            run_id=context.run_id,
            summary=summary,
            data=fields,
        )


def _summary_tokens(max_summary_tokens: int | None, max_output_tokens: int | None) -> int:
    if max_summary_tokens is not None:
        return max_summary_tokens
    return DEFAULT_MAX_SUMMARY_TOKENS if max_output_tokens is None else max_output_tokens


def _checked_level(level: str | None) -> str | None:
    level = "off" if level == "none" else level
    if level is not None and not is_thinking_level(level):
        raise UsageError(
            f"thinking_level must be one of {', '.join(THINKING_LEVELS)}, not {level!r}.",
            code="unknown_thinking_level",
        )
    return level

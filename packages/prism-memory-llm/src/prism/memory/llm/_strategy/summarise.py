"""Asking for summaries, also where the transcript is longer than the model's window."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from prism.core import CompactionError, ErrorInfo, ModelLimits, Usage
from prism.core.providers import Provider, ProviderRequest
from prism.memory.llm._prompts import SummaryPrompts, summary_request
from prism.memory.llm._strategy.collect import Answer, ProviderFailed, collect_answer
from prism.memory.llm._strategy.failures import Failures, Unusable
from prism.memory.llm._strategy.limits import MAX_SUMMARY_CALLS, Limits
from prism.memory.llm._strategy.request import RequestMaker
from prism.memory.llm._tokens import estimate_text_tokens

OVERFLOW: Final = "context_overflow"

_MAX_OVERFLOWS: Final = 8
_OUTPUT_SHARE: Final = 4
"""A summary may take this part of the window, so that the next one can be read and written."""

_MIN_ROOM_TOKENS: Final = 64
_MAX_SCALE: Final = 4.0
_FRAME_TOKENS: Final = 32


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be summarised.

    Attributes:
        transcript: Text of each entry, in path order.
        previous: The summary that is carried on.
        initial: Instructions without an earlier summary.
        max_tokens: Of the summary, unless the window is too small for it.
    """

    transcript: list[str]
    previous: str | None
    initial: str
    max_tokens: int


class Summariser:
    """Asks the model, and keeps count of the calls of one compaction.

    Attributes:
        usage: Sum of all calls.
        truncated: Whether a summary was cut where it goes on.
    """

    def __init__(
        self,
        *,
        provider: Provider,
        requests: RequestMaker,
        prompts: SummaryPrompts,
        focus: str | None,
        limits: Limits,
        failures: Failures,
    ) -> None:
        self._provider = provider
        self._requests = requests
        self._prompts = prompts
        self._focus = focus
        self._limits = limits
        self._failures = failures
        self._calls = 0
        self._overflows = 0
        known = requests.model.limits or ModelLimits()
        self._window = known.context_window
        self._scale = 1.0
        instructions = (prompts.initial, prompts.update, prompts.turn_prefix)
        self._fixed_tokens = (
            estimate_text_tokens(prompts.system)
            + max(map(estimate_text_tokens, instructions))
            + estimate_text_tokens(focus or "")
            + _FRAME_TOKENS
        )
        self.usage: Usage | None = None
        self.truncated = False

    async def summarise(self, task: Task) -> str:
        """One call, unless the request is longer than the window.

        Then the transcript is summarised in parts, the oldest first, each into the summary of what
        came before it.

        Raises:
            CompactionError: `context_overflow` when that does not help within the bounds;
                otherwise what the provider, a policy or the answer did wrong.
        """
        pending = deque((text, estimate_text_tokens(text)) for text in task.transcript)
        summary = task.previous
        while pending:
            room = self._room(task, summary)
            if room is not None and summary is not None:
                size = estimate_text_tokens(summary)
                if size > room:  # the earlier summary itself leaves no place for the transcript
                    pending.appendleft((_as_entry(summary), size))
                    summary = None
                    continue
            chunk, rest = _take(pending, room)
            text = summary_request(
                "\n".join(chunk),
                task.initial if summary is None else self._prompts.update,
                previous=summary,
                focus=self._focus,
            )
            answer = await self._ask(text, self._max_tokens(task))
            if isinstance(answer, ProviderFailed):
                self._overflowed(answer.info, text, task)
                continue
            pending, summary = rest, answer.text
            self.truncated = self.truncated or answer.truncated
        assert summary is not None  # noqa: S101 - a task is never empty
        return summary

    async def _ask(self, text: str, max_tokens: int) -> Answer | ProviderFailed:
        if self._calls >= MAX_SUMMARY_CALLS:
            raise CompactionError(
                f"The conversation is too long for the summary model: after {MAX_SUMMARY_CALLS} "
                "requests a part of it is still not covered. Take a model with a larger window, or "
                "raise keep_recent_tokens.",
                code=OVERFLOW,
                details={"limit": MAX_SUMMARY_CALLS, "window": self._window},
            )
        self._calls += 1
        await checkpoint()
        request = self._requests.build(
            system=self._prompts.system,
            text=text,
            max_tokens=max_tokens,
        )
        try:
            outcome = await self._failures.guarded_async(
                "The summary model's provider failed", lambda: self._read(request)
            )
        finally:
            # A provider that turns an abort into a failure of its own does not hide the abort.
            await checkpoint_if_cancelled()
        if isinstance(outcome, Unusable):
            raise outcome.error
        self._add(outcome.usage)
        if isinstance(outcome, ProviderFailed) and outcome.info.code != OVERFLOW:
            raise self._failures.provider(outcome.info)
        return outcome

    async def _read(self, request: ProviderRequest) -> Answer | ProviderFailed | Unusable:
        """The answer, or why there is none: as a value, so that no handler is around it."""
        try:
            return await collect_answer(
                self._provider.generate(request),
                max_units=self._limits.max_units,
                max_events=self._limits.max_events,
                redactor=self._failures.redactor,
            )
        except (ProviderFailed, Unusable) as outcome:
            return outcome

    def _add(self, usage: Usage | None) -> None:
        if usage is not None:
            self.usage = usage if self.usage is None else self.usage + usage

    # The window

    def _max_tokens(self, task: Task) -> int:
        if self._window is None:
            return task.max_tokens
        return max(1, min(task.max_tokens, self._window // _OUTPUT_SHARE))

    def _room(self, task: Task, summary: str | None) -> int | None:
        """Estimated tokens of transcript that fit into the next request; `None` for unknown."""
        if self._window is None:
            return None
        room = int((self._window - self._max_tokens(task)) / self._scale) - self._fixed_tokens
        if summary is not None:
            # Less than half of what is left is no place for the transcript; see `summarise`.
            room -= min(estimate_text_tokens(summary), max(0, room // 2))
        if room < _MIN_ROOM_TOKENS:
            raise self._too_small(None)
        return room

    def _overflowed(self, info: ErrorInfo, text: str, task: Task) -> None:
        """Learn from a refusal how much fits."""
        self._overflows += 1
        sent = estimate_text_tokens(text) + estimate_text_tokens(self._prompts.system)
        details = info.details or {}
        used, limit = _number(details.get("used")), _number(details.get("limit"))
        asked = self._max_tokens(task)
        if used is not None:
            # Some vendors count what was asked for as output too.
            counted = min((used, used - asked), key=lambda count: abs(count - sent))
            self._scale = min(_MAX_SCALE, max(self._scale, counted / max(1, sent)))
        known = self._window
        if limit is not None and (known is None or limit < known):
            self._window = limit
        elif known is not None:
            self._window = known * 3 // 4
        else:
            self._window = int((sent + asked) * self._scale) // 2
        if self._overflows > _MAX_OVERFLOWS:
            raise self._too_small(info)

    def _too_small(self, info: ErrorInfo | None) -> CompactionError:
        message = "" if info is None else f" It said: {self._failures.provider(info).message}"
        return CompactionError(
            "The summary request does not fit into the summary model's window, also in parts."
            + message,
            code=OVERFLOW,
            details={"window": self._window, "calls": self._calls},
        )


def _number(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def _as_entry(summary: str) -> str:
    lines = summary.strip().splitlines()
    return "[summary of what came before]\n  " + "\n  ".join(lines)


def _take(
    pending: Iterable[tuple[str, int]], room: int | None
) -> tuple[list[str], deque[tuple[str, int]]]:
    """As much of the transcript as fits, and the rest; an entry that is too long is divided."""
    rest = deque(pending)
    if room is None:
        return [text for text, _ in rest], deque()
    chunk: list[str] = []
    while rest and rest[0][1] <= room:
        text, size = rest.popleft()
        chunk.append(text)
        room -= size + 1
    if not chunk:
        text, size = rest.popleft()
        at = max(1, len(text) * room // size)
        line = text.rfind("\n", at // 2, at)
        at = line if line > 0 else at
        chunk.append(text[:at])
        remainder = f"[continued]\n  {text[at:].strip()}"
        rest.appendleft((remainder, estimate_text_tokens(remainder)))
    return chunk, rest

"""The conformance suite of providers finds the faults that it is made for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from itertools import count
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from prism.core._errors import UsageError
from prism.core._wire import ErrorInfo, TextBlock, Usage
from prism.core.providers import (
    BlockFinished,
    Done,
    Failed,
    MockProvider,
    Notice,
    ProviderEvent,
    ProviderRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    UsageUpdate,
    delay,
    done,
    error,
    text_delta,
    thinking_delta,
    tool_call_delta,
    usage,
)
from prism.core.testing import (
    PROVIDER_CASES,
    OpenedProvider,
    ProviderCase,
    ProviderHarness,
    ScriptedAnswer,
    provider_cases,
    provider_conformance,
    run_provider_case,
)

SECRET = "sk-mine-0123456789abcdef"  # noqa: S105
CODES = {
    401: "auth", 403: "permission", 404: "not_found", 429: "rate_limit", 500: "server_error",
    503: "temporarily_unavailable", 529: "temporarily_unavailable",
}  # fmt: skip


def script_of(answer: ScriptedAnswer) -> list[Any]:
    """What a `MockProvider` plays for an answer of the suite."""
    if answer.end == "refuse":
        code = CODES.get(answer.status, "invalid_request")
        message = answer.message.replace(SECRET, "[REDACTED]")[:1_024]
        return [error(message, code=code, retry_after_ms=answer.retry_after_ms)]
    script: list[Any] = [thinking_delta(piece) for piece in answer.thinking]
    script += [text_delta(piece) for piece in answer.text]
    first = bool(answer.thinking) + bool(answer.text)
    for index, call in enumerate(answer.calls, first):
        script.append(tool_call_delta(index=index, id=call.id, name=call.name))
        script += [tool_call_delta(index=index, arguments_text=part) for part in call.arguments]
    if answer.end == "stall":
        return [*script, delay(3_600_000)]
    if answer.end == "cut":
        return [*script, error("The stream ended too early.", code="stream_truncated")]
    if answer.end == "fail":
        message = answer.message.replace(SECRET, "[REDACTED]")
        return [*script, error(message, code="server_error")]
    if answer.usage is not None:
        early = Usage(input_tokens=answer.usage.input_tokens, output_tokens=1)
        script.append(usage(early))
    stop = None if answer.stop == "tool_use" else answer.stop
    return [*script, done(usage=answer.usage, stop_reason=stop)]


def mock_harness(kind: type[MockProvider] = MockProvider, **fields: Any) -> ProviderHarness:
    def opened(answers: Sequence[ScriptedAnswer]) -> MockProvider:
        numbers = count()

        def script(_: ProviderRequest) -> list[Any]:
            return script_of(answers[min(next(numbers), len(answers) - 1)])

        return kind(script)

    return ProviderHarness(open=opened, secret=SECRET, **fields)


@pytest.mark.parametrize("case", provider_cases(), ids=str)
async def test_the_scripted_provider_keeps_the_contract(case: ProviderCase) -> None:
    await run_provider_case(case, mock_harness())


async def test_one_call_holds_a_provider_to_all_that_its_harness_offers() -> None:
    assert await provider_conformance(mock_harness()) == [case.name for case in PROVIDER_CASES]
    kept = await provider_conformance(mock_harness(calls=False, errors=False))
    assert kept == [case.name for case in provider_cases("calls", "errors")]
    assert 0 < len(kept) < len(PROVIDER_CASES)


async def test_a_case_that_the_harness_cannot_play_is_refused() -> None:
    case = next(case for case in PROVIDER_CASES if "thinking" in case.needs)
    with pytest.raises(UsageError, match="needs a harness with thinking"):
        await run_provider_case(case, mock_harness(thinking=False))
    case = next(case for case in PROVIDER_CASES if "secret" in case.needs)
    with pytest.raises(UsageError, match="needs a harness with secret"):
        await run_provider_case(case, replace(mock_harness(), secret=None))


# Providers with one fault each

Changed = Callable[[Any], Iterator[Any]]


def rewriting(change: Callable[[], Changed], name: str = "") -> type[MockProvider]:
    """A provider whose every event goes through *change*, which is made anew for each answer."""

    class Rewriting(MockProvider):
        async def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
            changed = change()
            events = super().generate(request)
            try:
                async for event in events:
                    for made in changed(event):
                        yield made
            finally:
                await events.aclose()

    Rewriting.__name__ = name or change.__name__
    return Rewriting


def plainly(change: Changed) -> type[MockProvider]:
    return rewriting(lambda: change, change.__name__)


def goes_on_after_the_end(event: Any) -> Iterator[Any]:
    yield event
    if isinstance(event, Done):
        yield TextDelta(text="more")


def ends_twice(event: Any) -> Iterator[Any]:
    yield event
    if isinstance(event, Done | Failed):
        yield event


def never_ends(event: Any) -> Iterator[Any]:
    if not isinstance(event, Done | Failed):
        yield event


def yields_what_is_no_event(event: Any) -> Iterator[Any]:
    if isinstance(event, Done):
        yield {"type": "done"}
    yield event


def leaves_a_hole_in_the_indexes(event: Any) -> Iterator[Any]:
    if isinstance(event, ToolCallChunk):
        event = replace(event, index=event.index + 1)
    yield event


def ends_a_block_with_other_text(event: Any) -> Iterator[Any]:
    if isinstance(event, Done):
        yield BlockFinished(index=0, block=TextBlock(text="something else"))
    yield event


def writes_after_the_end_of_a_block() -> Changed:
    ended: list[bool] = []

    def change(event: Any) -> Iterator[Any]:
        if isinstance(event, TextDelta):
            yield replace(event, index=0)
            if not ended:
                ended.append(True)
                yield BlockFinished(index=0, block=TextBlock(text=event.text))
            return
        yield event

    return change


def swallows_text(event: Any) -> Iterator[Any]:
    if not isinstance(event, TextDelta) or event.text.strip() == event.text:
        yield event


def gives_reasoning_as_text(event: Any) -> Iterator[Any]:
    yield TextDelta(text=event.text) if isinstance(event, ThinkingDelta) else event


def renames_a_call_halfway(event: Any) -> Iterator[Any]:
    yield event
    if isinstance(event, ToolCallChunk) and event.name:
        yield ToolCallChunk(index=event.index, name="other")


def gives_all_calls_one_id(event: Any) -> Iterator[Any]:
    yield replace(event, id="call_1") if isinstance(event, ToolCallChunk) and event.id else event


def drops_broken_arguments(event: Any) -> Iterator[Any]:
    if not (isinstance(event, ToolCallChunk) and event.arguments_text.startswith(("[", "not"))):
        yield event


def tells_less_usage_later(event: Any) -> Iterator[Any]:
    if isinstance(event, Done) and event.usage is not None:
        yield UsageUpdate(usage=Usage(input_tokens=11, output_tokens=90))
    yield event


def tells_no_usage(event: Any) -> Iterator[Any]:
    if isinstance(event, Done):
        event = replace(event, usage=None)
    if not isinstance(event, UsageUpdate):
        yield event


def says_stop_whatever_happened(event: Any) -> Iterator[Any]:
    yield replace(event, stop_reason="stop") if isinstance(event, Done) else event


def makes_a_cut_answer_a_whole_one(event: Any) -> Iterator[Any]:
    is_cut = isinstance(event, Failed) and event.error.code == "stream_truncated"
    yield Done() if is_cut else event


def raises_failures(event: Any) -> Iterator[Any]:
    failed = isinstance(event, Failed)
    if failed:
        raise RuntimeError(event.error.message)
    yield event


def makes_every_failure_final(event: Any) -> Iterator[Any]:
    if isinstance(event, Failed):
        event = Failed(error=ErrorInfo(message=event.error.message, code="invalid_request"))
    yield event


def shows_the_key_in_errors(event: Any) -> Iterator[Any]:
    if isinstance(event, Failed):
        event = Failed(error=replace(event.error, message=f"{event.error.message} {SECRET}"))
    yield event


def shows_half_of_the_key(event: Any) -> Iterator[Any]:
    if isinstance(event, Failed):
        event = Failed(error=replace(event.error, details={"key": SECRET[:14]}))
    yield event


def has_empty_notices(event: Any) -> Iterator[Any]:
    yield Notice(code="", message="")
    yield event


class ShowsTheKey(MockProvider):
    def __repr__(self) -> str:
        return f"MockProvider({SECRET!r})"


class IsACoroutine(MockProvider):
    async def generate(self, request: ProviderRequest) -> Any:  # type: ignore[override]
        return super().generate(request)


class ChangesTheRequest(MockProvider):
    def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
        if request.tools:
            request.tools[0].parameters["additionalProperties"] = False
        return super().generate(request)


class RefusesForeignReasoning(MockProvider):
    async def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
        if len(request.messages) > 1:
            yield Failed(error=ErrorInfo(message="no", code="replay_invalid"))
            return
        async for event in super().generate(request):
            yield event


class SwallowsCancellation(MockProvider):
    def generate(self, request: ProviderRequest) -> Any:
        return _Swallowing(super().generate(request))


class KeepsStateBesideTheAnswer(MockProvider):
    seen: list[str]

    async def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
        self.seen = []
        async for event in super().generate(request):
            await checkpoint()
            if isinstance(event, TextDelta):
                self.seen.append(event.text)
            elif isinstance(event, Done):
                yield TextDelta(text="".join(self.seen))
                yield event
            else:
                yield event


class EndsAgainWhenAsked(MockProvider):
    def generate(self, request: ProviderRequest) -> Any:
        return _Again(super().generate(request))


class _Again:
    def __init__(self, events: AsyncGenerator[ProviderEvent]) -> None:
        self._events = events
        self._ended = False

    def __aiter__(self) -> AsyncIterator[ProviderEvent]:
        return self

    async def __anext__(self) -> ProviderEvent:
        try:
            return await anext(self._events)
        except StopAsyncIteration:
            if self._ended:
                return Done()
            self._ended = True
            raise

    async def aclose(self) -> None:
        await self._events.aclose()


class _Swallowing(_Again):
    async def __anext__(self) -> ProviderEvent:
        try:
            return await anext(self._events)
        except anyio.get_cancelled_exc_class():
            return Failed(error=ErrorInfo(message="cancelled", code="aborted"))


class WaitsForTheWholeAnswer(MockProvider):
    async def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
        for event in [event async for event in super().generate(request)]:
            yield event


class ClosesOnce(MockProvider):
    closed = False

    async def aclose(self) -> None:
        if self.closed:
            raise RuntimeError("already closed")
        self.closed = True


class HasNoId(MockProvider):
    def __init__(self, script: Any = None) -> None:
        super().__init__(script, id="")


FAULTS: list[tuple[type[MockProvider], str]] = [
    (plainly(goes_on_after_the_end), "an_answer_ends_with_one_terminal_event"),
    (plainly(ends_twice), "an_answer_ends_with_one_terminal_event"),
    (plainly(ends_twice), "a_refusal_is_one_event_and_no_exception"),
    (plainly(never_ends), "an_answer_ends_with_one_terminal_event"),
    (plainly(yields_what_is_no_event), "an_answer_ends_with_one_terminal_event"),
    (plainly(leaves_a_hole_in_the_indexes), "arguments_are_put_together_and_parsed"),
    (plainly(ends_a_block_with_other_text), "text_is_the_sum_of_its_pieces"),
    (rewriting(writes_after_the_end_of_a_block), "text_is_the_sum_of_its_pieces"),
    (plainly(swallows_text), "text_is_the_sum_of_its_pieces"),
    (plainly(gives_reasoning_as_text), "reasoning_stands_apart_from_text"),
    (plainly(renames_a_call_halfway), "arguments_are_put_together_and_parsed"),
    (
        plainly(gives_all_calls_one_id),
        "several_calls_keep_their_order_and_have_ids_of_their_own",
    ),
    (plainly(gives_all_calls_one_id), "a_call_keeps_the_id_that_the_vendor_gave"),
    (plainly(drops_broken_arguments), "broken_arguments_become_a_call_that_says_so"),
    (plainly(tells_less_usage_later), "usage_is_told_and_cumulative"),
    (plainly(tells_no_usage), "usage_is_told_and_cumulative"),
    (plainly(says_stop_whatever_happened), "the_reason_to_stop_is_told"),
    (plainly(says_stop_whatever_happened), "arguments_are_put_together_and_parsed"),
    (plainly(makes_a_cut_answer_a_whole_one), "an_answer_that_is_cut_off_is_a_failure"),
    (plainly(raises_failures), "a_refusal_is_one_event_and_no_exception"),
    (plainly(raises_failures), "a_failure_in_the_midst_keeps_what_had_come"),
    (plainly(makes_every_failure_final), "a_refusal_says_whether_it_is_worth_another_try"),
    (plainly(makes_every_failure_final), "how_long_to_wait_is_told"),
    (plainly(shows_the_key_in_errors), "the_credential_is_in_no_event"),
    (plainly(shows_half_of_the_key), "the_credential_is_in_no_event"),
    (plainly(has_empty_notices), "an_answer_ends_with_one_terminal_event"),
    (ShowsTheKey, "the_credential_is_not_shown_with_the_provider"),
    (IsACoroutine, "an_answer_ends_with_one_terminal_event"),
    (ChangesTheRequest, "a_request_is_left_as_it_was"),
    (RefusesForeignReasoning, "a_conversation_of_another_vendor_is_taken"),
    (SwallowsCancellation, "cancellation_goes_through_and_hangs_up"),
    (KeepsStateBesideTheAnswer, "several_answers_at_a_time_do_not_mix"),
    (EndsAgainWhenAsked, "a_stream_that_has_ended_stays_ended"),
    (ClosesOnce, "a_provider_can_be_closed_more_than_once"),
    (HasNoId, "a_provider_says_who_it_is"),
]


@pytest.mark.parametrize(("kind", "name"), FAULTS)
async def test_a_fault_is_found(kind: type[MockProvider], name: str) -> None:
    (case,) = [case for case in PROVIDER_CASES if case.name == name]
    with pytest.raises((AssertionError, RuntimeError)):
        await run_provider_case(case, mock_harness(kind))


async def test_all_that_is_broken_is_told_at_once_by_name() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await provider_conformance(mock_harness(plainly(never_ends), stalls=False))
    notes = [note for error in caught.value.exceptions for note in error.__notes__]
    assert "an_answer_ends_with_one_terminal_event" in notes
    assert "a_session_gets_the_answer" in notes
    assert "a_provider_says_who_it_is" not in notes


async def test_an_answer_that_stays_open_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prism.core.testing._provider_conformance._leaving.PATIENCE_SECONDS", 0.01)
    inner = mock_harness()

    def opened(answers: Sequence[ScriptedAnswer]) -> OpenedProvider:
        provider: Any = inner.open(answers)
        return OpenedProvider(provider=provider, released=anyio.sleep_forever)

    harness = replace(inner, open=opened)
    for name in ("an_answer_that_is_left_early_hangs_up", "cancellation_goes_through_and_hangs_up"):
        (case,) = [case for case in PROVIDER_CASES if case.name == name]
        with pytest.raises(AssertionError, match="still has an answer open"):
            await run_provider_case(case, harness)
    (case,) = [c for c in PROVIDER_CASES if c.name.startswith("what_has_come_is_given")]
    with pytest.raises(AssertionError, match="while the vendor paused"):
        await run_provider_case(case, mock_harness(WaitsForTheWholeAnswer))


async def test_a_harness_may_open_its_provider_asynchronously() -> None:
    inner = mock_harness()

    async def opened(answers: Sequence[ScriptedAnswer]) -> Any:
        await checkpoint()
        return inner.open(answers)

    case = PROVIDER_CASES[0]
    await run_provider_case(case, replace(inner, open=opened))

"""Failures: of the vendor, of the network, and what must not be told of them."""

from __future__ import annotations

from typing import Final

from prism.core._retry import is_transient
from prism.core._wire import ErrorInfo
from prism.core.testing._provider_conformance._answering import ADD, HELLO
from prism.core.testing._provider_conformance._harness import (
    ProviderStage,
    ScriptedAnswer,
    case,
    cases_of,
)
from prism.core.testing._provider_conformance._reading import Heard, hear, shown
from prism.core.testing._store_conformance._harness import expect, expect_equal

MAX_MESSAGE_CHARS: Final = 4_096
"""Longest message of an error that a provider may give."""


async def failure(stage: ProviderStage, answer: ScriptedAnswer) -> tuple[Heard, ErrorInfo]:
    """An answer that must fail, and its error."""
    heard = await hear(await stage.open(answer), stage.ask())
    if heard.error is None:
        raise AssertionError(f"The answer did not fail; it ended with {heard.done}.")
    return heard, heard.error


def refusal(
    status: int, message: str = "No.", *, retry_after_ms: int | None = None
) -> ScriptedAnswer:
    """An error instead of an answer."""
    return ScriptedAnswer(
        end="refuse", status=status, message=message, retry_after_ms=retry_after_ms
    )


@case("errors")
async def a_refusal_is_one_event_and_no_exception(stage: ProviderStage) -> None:
    for status in (400, 401, 403, 404, 429, 500, 503, 529):
        heard, error = await failure(stage, refusal(status))
        expect(not heard.has_output, f"The refusal with status {status} has content.")
        expect(bool(error.message), f"The refusal with status {status} has no message.")
        expect(error.code is not None, f"The refusal with status {status} has no code.")


@case("errors")
async def a_refusal_says_whether_it_is_worth_another_try(stage: ProviderStage) -> None:
    for status in (429, 500, 503):
        _, error = await failure(stage, refusal(status))
        expect(is_transient(error), f"Status {status} became {error.code!r}, which is final.")
    for status, code in ((401, "auth"), (403, "permission"), (404, "not_found")):
        _, error = await failure(stage, refusal(status))
        expect(not is_transient(error), f"Status {status} became {error.code!r}.")
        expect_equal(error.code, code, f"The code of status {status}")
    _, error = await failure(stage, refusal(429))
    expect_equal(error.code, "rate_limit", "The code of status 429")


@case("errors")
async def how_long_to_wait_is_told(stage: ProviderStage) -> None:
    _, error = await failure(stage, refusal(429, retry_after_ms=7_000))
    expect_equal(error.retry_after_ms, 7_000, "retry_after_ms")


@case("errors")
async def a_long_message_is_cut(stage: ProviderStage) -> None:
    _, error = await failure(stage, refusal(400, "too long " * 100_000))
    expect(
        len(error.message) <= MAX_MESSAGE_CHARS,
        f"The message of an error has {len(error.message)} characters.",
    )


@case("errors")
async def an_answer_that_is_cut_off_is_a_failure(stage: ProviderStage) -> None:
    heard, error = await failure(stage, ScriptedAnswer(text=("One", " two"), end="cut"))
    expect_equal(heard.text, "One two", "What had come before")
    expect_equal(error.code, "stream_truncated", "The code")


@case("errors")
async def an_answer_that_is_cut_off_before_it_began_may_be_asked_again(
    stage: ProviderStage,
) -> None:
    heard, error = await failure(stage, ScriptedAnswer(end="cut"))
    expect(not heard.has_output, "An answer without content has output.")
    expect_equal(error.code, "stream_truncated", "The code")


@case("errors", "calls")
async def an_answer_that_is_cut_off_after_a_call_is_a_failure(stage: ProviderStage) -> None:
    _, error = await failure(stage, ScriptedAnswer(calls=(ADD,), end="cut"))
    expect_equal(error.code, "stream_truncated", "The code")


@case("errors")
async def a_failure_in_the_midst_keeps_what_had_come(stage: ProviderStage) -> None:
    answer = ScriptedAnswer(text=("One",), end="fail", message="Our machine broke.")
    heard, error = await failure(stage, answer)
    expect_equal(heard.text, "One", "What had come before")
    expect("Our machine broke" in error.message, f"The message is {error.message!r}.")


@case("errors")
async def a_provider_goes_on_after_a_failure(stage: ProviderStage) -> None:
    provider = await stage.open(refusal(503), ScriptedAnswer(text=("x",), end="cut"), HELLO)
    expect((await hear(provider, stage.ask())).error is not None, "The refusal was no failure.")
    expect((await hear(provider, stage.ask())).error is not None, "The cut was no failure.")
    expect_equal((await hear(provider, stage.ask())).text, "Hello", "The next answer")


@case("errors", "secret")
async def the_credential_is_in_no_event(stage: ProviderStage) -> None:
    secret = stage.harness.secret or ""
    words = f"Incorrect API key provided: {secret}. Bearer {secret} was refused."
    answers = [
        HELLO,
        ScriptedAnswer(text=("One",), end="cut"),
        ScriptedAnswer(text=("One",), end="fail", message=words),
        *(refusal(status, words) for status in (400, 401, 403, 429, 500)),
        # Cut to its limit, a message must not end in a part of the credential.
        *(refusal(400, "x" * length + words) for length in (950, 1_000, 4_000, 4_080)),
    ]
    for answer in answers:
        heard = await hear(await stage.open(answer), stage.ask())
        expect_hidden(shown(heard.events), secret, "An event")


@case("secret")
async def the_credential_is_not_shown_with_the_provider(stage: ProviderStage) -> None:
    provider = await stage.open(HELLO)
    secret = stage.harness.secret or ""
    for when in ("A new provider", "A provider that was used"):
        expect_hidden(f"{provider!r} {provider}", secret, when)
        await hear(provider, stage.ask())


def expect_hidden(text: str, secret: str, what: str) -> None:
    """Nothing of a secret is in the text, not even its first half.

    Raises:
        AssertionError: It is.
    """
    half = secret[: max(8, len(secret) // 2)]
    expect(half not in text, f"{what} shows the credential.")


CASES: Final = cases_of(globals())

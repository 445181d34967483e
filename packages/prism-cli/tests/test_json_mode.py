"""`--mode json`: one event a line in ASCII, and on failure a last line that says why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prism.cli import main
from prism.core import ErrorEvent, MessageDelta, decode_event, encode
from prism.core.testing import EventLaws

from .loopback import DONE, Loopback, chunk, serving


def flags(server: Loopback, *more: str) -> list[str]:
    at = ["--provider", "openai-chat", "--base-url", server.url, "--model", "m"]
    return ["--mode", "json", *at, *more]


def lines(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capfd.readouterr().out.split("\n")[:-1]]


def test_every_line_is_an_event_in_its_envelope(capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        server.send(chunk("Hé\u2028"), chunk("llo"), DONE)
        assert main(flags(server, "--session", "s1", "-p", "Hi")) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out.isascii()
    assert out.endswith("\n")
    records = [json.loads(line) for line in out.split("\n")[:-1]]
    laws = EventLaws()
    text = ""
    for record in records:
        assert record["type"] == "event"
        assert record["sessionId"] == "s1"
        assert record["runId"] == record["event"]["runId"]
        event = decode_event(encode(record["event"]))
        laws.feed(event)
        if isinstance(event, MessageDelta):
            text += event.content.text  # type: ignore[union-attr]
    laws.close()
    assert text == "Hé\u2028llo"


def test_a_failure_is_the_last_line_and_status_1(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism.cli._host.RETRY", False)
    with serving() as server:
        server.status = 401
        server.send(b'{"error":{"message":"Bad key."}}', b"[DONE]\n\n")
        assert main(flags(server, "-p", "Hi")) == 1
    *events, last = lines(capfd)
    assert last["type"] == "error"
    assert last["error"]["code"] == "auth"
    assert isinstance(decode_event(encode(events[-4]["event"])), ErrorEvent)


def test_an_answer_that_was_cut_short_is_no_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        server.send(chunk("Once upon"), chunk(finish="length"), b"data: [DONE]\n\n")
        assert main(flags(server, "-p", "Hi")) == 0
    finished = [record["event"] for record in lines(capfd)][-2]
    assert (finished["type"], finished["status"]) == ("agent_finished", "completed")


def test_a_wrong_command_line_leaves_stdout_empty(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--mode", "json", "-p", "Hi"]) == 2
    assert capfd.readouterr().out == ""

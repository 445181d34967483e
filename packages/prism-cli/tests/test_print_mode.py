"""`prism -p …`: the answer's text on stdout, a failure as one line on stderr, the exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from prism.cli import _options, main
from prism.core import THINKING_LEVELS

from .loopback import DONE, Loopback, chunk, serving

MOCK = ["--provider", "mock"]


def openai(server: Loopback, *more: str) -> list[str]:
    return ["--provider", "openai-chat", "--base-url", server.url, "--model", "m", *more]


def test_the_mock_provider_answers_hello(capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*MOCK, "--model", "demo", "-p", "Hi"]) == 0
    assert capfd.readouterr() == ("Hello", "")


def test_only_the_assistants_text_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        server.send(chunk("Hé"), chunk("llo\u2028\n"), DONE)
        assert main(openai(server, "-p", "Hi", "--system", "Be brief.")) == 0
    assert capfd.readouterr() == ("Héllo\u2028\n", "")
    (request,) = server.requests
    assert [(m["role"], m["content"]) for m in request["messages"]] == [
        ("system", "Be brief."),
        ("user", "Hi"),
    ]


@pytest.mark.parametrize("kind", ["directory", "sqlite"])
def test_a_session_goes_on_where_it_was_stored(kind: str, tmp_path: Path) -> None:
    where = str(tmp_path / "store") if kind == "directory" else f"sqlite:{tmp_path / 'store.db'}"
    with serving() as server:
        for text in ("One", "Two"):
            server.send(chunk(text), DONE)
            flags = ["--store", where, "--session", "s1", "-p", f"Say {text}"]
            assert main(openai(server, *flags)) == 0
    assert [m["content"] for m in server.requests[1]["messages"]] == ["Say One", "One", "Say Two"]


def test_the_key_is_taken_from_the_named_variable_and_never_shown(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    with serving() as server:
        server.send(chunk("It is sk-very-"), chunk("secret."), DONE)
        flags = ["--credential-env", "MY_KEY", "--store", str(tmp_path), "-p", "sk-very-secret?"]
        assert main(openai(server, *flags)) == 0
    assert server.headers[0]["authorization"] == "Bearer sk-very-secret"
    assert capfd.readouterr() == ("It is [REDACTED].", "")
    (file,) = tmp_path.glob("*.jsonl")
    assert "sk-very-secret" not in file.read_text(encoding="utf-8")


def test_no_variable_is_read_that_was_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-you")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    with serving() as server:
        server.send(chunk("Hi"), DONE)
        assert main(openai(server, "-p", "Hi")) == 0
    assert "authorization" not in server.headers[0]


def test_redact_env_hides_a_value_everywhere(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter2hunter2")
    with serving() as server:
        server.send(chunk("hunter2"), chunk("hunter2!"), DONE)
        flags = ["--redact-env", "DB_PASSWORD", "--store", str(tmp_path), "-p", "hunter2hunter2"]
        assert main(openai(server, *flags)) == 0
    assert capfd.readouterr().out == "[REDACTED]!"
    assert server.requests[0]["messages"][0]["content"] == "[REDACTED]"
    (file,) = tmp_path.glob("*.jsonl")
    assert "hunter2" not in file.read_text(encoding="utf-8")


def test_an_unreachable_server_is_one_line_and_status_1(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prism.cli._host.RETRY", False)
    flags = ["--provider", "openai-chat", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"]
    assert main([*flags, "-p", "Hi"]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("prism: Cannot connect to http://127.0.0.1:9")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ([], "needs a prompt"),
        (["-p", "  "], "needs a prompt"),
        (["-p", "Hi"], "Name a provider"),
        (["-p", "Hi", "--provider", "nobody"], "Unknown provider 'nobody'"),
        (["-p", "Hi", "--provider", "openai-chat"], "needs a model"),
        (["-p", "Hi", *MOCK, "--base-url", "http://x"], "means nothing"),
        (["-p", "Hi", *MOCK, "--credential-env", "K"], "K, which is not set"),
        (["-p", "Hi", *MOCK, "--redact-env", "EMPTY"], "EMPTY, which is empty"),
        (["-p", "Hi", *MOCK, "--max-tool-rounds", "0"], "--max-tool-rounds"),
        (["-p", "Hi", *MOCK, "--max-tool-rounds", "ten"], "--max-tool-rounds"),
        (["-p", "Hi", *MOCK, "--compact", "-1"], "--compact"),
        (["-p", "Hi", *MOCK, "--mode", "xml"], "--mode"),
        (["-p", "Hi", *MOCK, "--store", __file__], "is a file"),
        (["-p", "Hi", *MOCK, "--store", f"sqlite:{Path(__file__).parent}"], "is a directory"),
        (["-p", "Hi", *MOCK, "--store", "sqlite:"], "needs the name of a file"),
        (["-p", "Hi", *MOCK, "--frobnicate"], "--frobnicate"),
        (["-p", "Hi", "extra"], "extra"),
        (["Hi there", *MOCK], "A prompt is given with -p, in quotes."),
        ([*MOCK, "Hi"], "A prompt is given with -p, in quotes."),
        (["-p", "Hi", *MOCK, "--thinking", "hard"], "'minimal', 'low', 'medium'"),
        (["-p", "Hi", *MOCK, "--credential-env", "sk-a1"], "the name of an environment variable"),
        (["-p", "Hi", *MOCK, "--redact-env", ""], "the name of an environment variable"),
        (["-p", "Hi", "--mode", "rpc", *MOCK], "-p belongs to the modes"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(
    flags: list[str],
    complaint: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("K", raising=False)
    monkeypatch.setenv("EMPTY", "")
    assert main(flags) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert complaint in err
    assert err.startswith("prism: ")
    assert err.count("\n") == 1
    assert "sk-a1" not in err


@pytest.mark.parametrize(
    ("status", "flags", "advice"),
    [
        (401, [], "(No key was sent: name the variable that holds it with --credential-env.)"),
        (401, ["--credential-env", "MY_KEY"], "environment variable MY_KEY.)"),
        (404, [], "(Check --model and --base-url.)"),
    ],
)
def test_a_refusal_names_the_flag_to_look_at(
    status: int,
    flags: list[str],
    advice: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    with serving() as server:
        server.status = status
        server.send(b"No, sk-very-secret. ", b"data: [DONE]\n\n")
        assert main(openai(server, *flags, "-p", "Hi")) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("prism: No, ")
    assert err.endswith(f"{advice}\n")
    assert not flags or "sk-very" not in err


def test_the_thinking_level_is_asked_for_and_a_lower_one_is_told(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with serving() as server:
        for level in ("low", "max"):
            server.send(chunk("Hi"), DONE)
            flags = ["--model", "gpt-5", "--thinking", level, "-p", "Hi"]
            assert main(openai(server, *flags)) == 0
    assert [request["reasoning_effort"] for request in server.requests] == ["low", "high"]
    assert capfd.readouterr() == (
        "HiHi",
        "prism: warning: Model 'gpt-5' has no thinking level 'max'; 'high' is asked for.\n",
    )


def test_the_thinking_levels_are_the_runtimes() -> None:
    assert _options.THINKING_LEVELS == THINKING_LEVELS


def test_recorded_flags_change_nothing(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ["--config", str(tmp_path / "none.json"), "--resource", "file:///none"]
    flags += ["--extension", "none", "--tool", "none", "--context", "none", "--tool", "two"]
    assert main([*MOCK, *flags, "-p", "Hi"]) == 0
    assert capfd.readouterr() == ("Hello", "")


def test_a_compaction_comes_before_a_run_that_is_too_long(tmp_path: Path) -> None:
    for _ in range(8):
        flags = ["--store", str(tmp_path), "--session", "s", "--compact", "12", "-p", "Hi"]
        assert main([*MOCK, *flags]) == 0
    (file,) = tmp_path.glob("*.jsonl")
    assert file.read_text(encoding="utf-8").count('"kind":"compaction"') == 1


def test_help_lists_every_flag(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out, _ = capfd.readouterr()
    flags = [
        "--prompt",
        "--thinking",
        "--mode",
        "--provider",
        "--model",
        "--session",
        "--config",
        "--resource",
    ]
    flags += ["--extension", "--tool", "--system", "--context", "--compact", "--max-tool-rounds"]
    flags += ["--store", "--base-url", "--credential-env", "--redact-env", "--app", "--version"]
    assert [flag for flag in flags if flag not in out] == []

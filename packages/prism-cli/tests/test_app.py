"""`--app module:attr`: what an app is given, and what it may be."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from prism.cli import App, HostOptions, main

HOST = """
import json
from prism.core import Agent, ModelConfig
from prism.core.providers import MockProvider, done, text_delta

class Host:
    closed = False

    def agent(self, options):
        words = [options.session, options.store, options.model]
        script = [text_delta(json.dumps(words)), done()]
        return Agent(
            model=ModelConfig(provider="mock", model="demo"),
            provider=MockProvider(script),
            store=options.open_store(),
        )

    def create_session(self, options):
        self.seen = options
        return self.agent(options).session(options.session)

    async def aclose(self):
        Host.closed = True

class Later(Host):
    async def create_session(self, options):
        return super().create_session(options)

class Broken(Host):
    def create_session(self, options):
        raise RuntimeError("the database is down")

host = Host()

def factory():
    return host

class nested:
    host = host
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that holds `HOST`, in the working directory."""
    name = f"host_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(HOST, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


@pytest.mark.parametrize("attribute", ["host", "Host", "Later", "factory", "nested.host"])
def test_an_app_is_an_object_or_what_makes_one(
    attribute: str, module: str, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = ["--session", "s1", "--store", "kept", "--model", "big"]
    assert main(["--app", f"{module}:{attribute}", *flags, "-p", "Hi"]) == 0
    assert json.loads(capfd.readouterr().out) == ["s1", "kept", "big"]
    assert sys.modules[module].Host.closed
    assert Path("kept").is_dir()


def test_an_app_gets_every_flag(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "sk-key")
    flags = {
        "--provider": "mine",
        "--model": "big",
        "--base-url": "http://x",
        "--credential-env": "KEY",
        "--session": "s1",
        "--store": "kept",
        "--system": "Be brief.",
        "--thinking": "low",
        "--max-tool-rounds": "3",
        "--compact": "100",
        "--redact-env": "KEY",
        "--config": "c.json",
        "--context": "It rains.",
    }
    repeated = ["--resource", "a", "--resource", "b", "--tool", "t", "--tool", "u"]
    repeated += ["--extension", "e", "--extension", "f"]
    given = [part for flag in flags.items() for part in flag]
    assert main(["--app", f"{module}:host", *given, *repeated, "-p", "Hi"]) == 0
    host: Any = sys.modules[module].host
    app: object = host
    assert isinstance(app, App)
    assert host.seen == HostOptions(
        mode="print",
        provider="mine",
        model="big",
        base_url="http://x",
        credential_env="KEY",
        session="s1",
        store="kept",
        system="Be brief.",
        thinking_level="low",
        max_tool_rounds=3,
        compact=100,
        redact_env=("KEY",),
        config="c.json",
        resources=("a", "b"),
        extensions=("e", "f"),
        tools=("t", "u"),
        context="It rains.",
    )


@pytest.mark.parametrize("mode", ["print", "json", "rpc"])
def test_an_app_that_fails_is_one_line_and_status_1(
    mode: str, module: str, capfd: pytest.CaptureFixture[str]
) -> None:
    prompt = [] if mode == "rpc" else ["-p", "Hi"]
    assert main(["--app", f"{module}:Broken", "--mode", mode, *prompt]) == 1
    out, err = capfd.readouterr()
    if mode == "json":
        assert json.loads(out)["error"]["message"] == "the database is down"
    else:
        assert (out, err) == ("", "prism: RuntimeError: the database is down\n")


def test_nothing_is_imported_without_an_app(module: str) -> None:
    assert main(["--provider", "mock", "--extension", module, "--tool", module, "-p", "Hi"]) == 0
    assert module not in sys.modules

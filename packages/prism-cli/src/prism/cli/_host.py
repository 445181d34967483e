"""Who makes the sessions: the flags alone, or a host's own app."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Iterable, Mapping
from importlib import import_module
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

import msgspec

from prism.cli._main import complain
from prism.core import (
    Agent,
    CompactionOptions,
    ModelConfig,
    PrismError,
    ProviderError,
    RetryOptions,
    SecretRedactor,
    Session,
)
from prism.core.providers import ProviderRegistry

if TYPE_CHECKING:
    from prism.core.host import CommandDefinition
    from prism.core.stores import SessionStore

RETRY: Final = RetryOptions(base_delay_ms=500, max_delay_ms=8_000, jitter=True)
"""For hosted models: they recover in seconds, and many clients should not come back at once."""

MAX_WARNINGS: Final = 1_000
"""Warnings of one store that are said."""

SQLITE_PREFIX: Final = "sqlite:"


class UsageProblem(Exception):  # noqa: N818
    """The command line asks for something that cannot be: one line, and exit status 2."""


class HostOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The flags, as an app's `create_session` gets them.

    prism itself applies `system`, `thinking_level`, `max_tool_rounds`, `compact` and `redact_env`
    to every run; with an app it leaves all others to it, and never acts on `config`, `resources`,
    `extensions`, `tools` and `context`.

    Attributes:
        mode: `print`, `json` or `rpc`.
        provider: `--provider`.
        model: `--model`.
        base_url: `--base-url`.
        credential_env: Name of the variable that holds the provider's key.
        session: Id of the session to open; `None`: a new one.
        store: `DIR` or `sqlite:FILE`; see `open_store`.
        system: `--system`.
        thinking_level: `--thinking`.
        max_tool_rounds: `--max-tool-rounds`.
        compact: `--compact`, entries above which a run compacts first.
        redact_env: Names of variables whose values are secret.
        config: `--config`.
        resources: Each `--resource`, in order.
        extensions: Each `--extension`, in order.
        tools: Each `--tool`, in order.
        context: `--context`.
    """

    mode: str = "print"
    provider: str | None = None
    model: str | None = None
    base_url: str | None = None
    credential_env: str | None = None
    session: str | None = None
    store: str | None = None
    system: str | None = None
    thinking_level: str | None = None
    max_tool_rounds: int | None = None
    compact: int | None = None
    redact_env: tuple[str, ...] = ()
    config: str | None = None
    resources: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    context: str | None = None

    def open_store(self) -> SessionStore:
        """The store that `--store` names; in memory without it."""
        if self.store is not None:
            return open_store(self.store)
        from prism.core.stores import MemorySessionStore

        return MemorySessionStore()

    def secrets(self) -> list[str]:
        """Values of the variables that were named as secret.

        Raises:
            UsageProblem: One is not set, or empty.
        """
        named = [("--redact-env", name) for name in self.redact_env]
        if self.credential_env is not None:
            named.append(("--credential-env", self.credential_env))
        return [_variable(flag, name) for flag, name in named]

    def run_options(self, redactor: SecretRedactor | None) -> dict[str, Any]:
        """What every run is given, whoever made its session."""
        options: dict[str, Any] = {}
        if self.system is not None:
            options["system"] = self.system
        if self.thinking_level is not None:
            options["thinking_level"] = self.thinking_level
        if self.max_tool_rounds is not None:
            options["max_tool_rounds"] = self.max_tool_rounds
        if self.compact is not None:
            options["compaction"] = CompactionOptions(threshold_entries=self.compact)
        if redactor is not None:
            options["redactor"] = redactor
        return options


def _variable(flag: str, name: str) -> str:
    if not (name.isidentifier() and name.isascii()):
        # It may be the secret itself: it is not repeated.
        raise UsageProblem(
            f"{flag} takes the name of an environment variable, such as OPENAI_API_KEY, "
            "and never its value; what was given is no name."
        )
    value = os.environ.get(name)
    if not value:
        state = "not set" if value is None else "empty"
        raise UsageProblem(
            f"{flag} names the environment variable {name}, which is {state}: export it first."
        )
    return value


def open_store(where: str) -> SessionStore:
    """The store that `DIR` or `sqlite:FILE` names; it is made when something is written.

    What is found damaged in a directory's files is said on stderr.

    Raises:
        UsageProblem: *where* names nothing, or a file where a directory has to be.
    """
    if where.startswith(SQLITE_PREFIX):
        path = where.removeprefix(SQLITE_PREFIX)
        if not path:
            raise UsageProblem("--store sqlite: needs the name of a file.")
        if os.path.isdir(path):  # noqa: PTH112 - pathlib would be loaded for this alone
            raise UsageProblem(
                f"--store sqlite:{path} is a directory; give a file, or just {path}."
            )
        from prism.core.stores import SqliteSessionStore

        return SqliteSessionStore(path)
    if not where:
        raise UsageProblem("--store needs a directory or sqlite:FILE.")
    from pathlib import Path

    if Path(where).is_file():
        raise UsageProblem(f"--store {where} is a file; give its directory, or sqlite:{where}.")
    from prism.core.stores import JsonlSessionStore

    said: set[str] = set()

    def warn(_code: str, text: str) -> None:
        if text not in said and len(said) < MAX_WARNINGS:
            said.add(text)
            complain(f"warning: {text}")

    return JsonlSessionStore(where, on_warning=warn)


@runtime_checkable
class App(Protocol):
    """What `--app module:attr` names: an object like this, or a callable that makes one.

    An app may also have `commands`, the `CommandDefinition`s that RPC clients may run (an iterable
    or a mapping, looked at anew for each request), and `async def aclose()`, called at the end.
    Without `aclose` the agents of its sessions are closed.
    """

    def create_session(self, options: HostOptions) -> Session | Awaitable[Session]:
        """The session `options.session`, or a new one. Called again for each session opened."""
        ...


class FlagsApp:
    """The app that the flags describe: a provider and a store, no tools.

    Attributes:
        model: The model that the flags name, whatever a session had before.
    """

    def __init__(self, options: HostOptions, redactor: SecretRedactor | None) -> None:
        from prism.cli._providers import make_provider

        self._provider, model = make_provider(options)
        self.model = ModelConfig(provider=self._provider.id, model=model)
        self._agent = Agent(
            model=self.model,
            # A registry, so that a model of another provider is refused.
            provider=ProviderRegistry([self._provider]),
            store=options.open_store(),
            redactor=redactor,
            retry=RETRY,
        )

    def create_session(self, options: HostOptions) -> Session:
        """A session of the one agent."""
        return self._agent.session(options.session)

    async def aclose(self) -> None:
        """Close the store and the provider."""
        await self._agent.aclose()
        close: Any = getattr(self._provider, "aclose", None)
        if close is not None:
            await close()


class Host:
    """An app, checked, with the options that it is given.

    Attributes:
        options: The flags.
        redactor: Knows the secrets that the flags name; `None` when they name none.
        run_options: For every run.
        model: For every run; `None`: the session's own.
    """

    def __init__(self, options: HostOptions, *, app: str | App | None = None) -> None:
        """Load the app.

        Raises:
            UsageProblem: It cannot be loaded or is none, or the flags do not fit together.
        """
        secrets = options.secrets()
        self.options = options
        self.redactor = SecretRedactor(secrets) if secrets else None
        self.run_options = options.run_options(self.redactor)
        self._name = app if isinstance(app, str) else ""
        if isinstance(app, str):
            app = load_app(app)
        self.model: ModelConfig | None = None
        if app is None:
            flags_app = FlagsApp(options, self.redactor)
            self.model = flags_app.model
            app = flags_app
        self._app: App = app
        _commands(self._app, self._name)
        self._agents: list[Agent] = []

    @property
    def commands(self) -> dict[str, CommandDefinition]:
        """The app's commands by name, as they are now.

        Raises:
            UsageProblem: They are none.
        """
        return _commands(self._app, self._name)

    async def open_session(self, session_id: str | None) -> Session:
        """Ask the app for a session.

        Raises:
            UsageProblem: What it gives is none.
            Exception: What it raised.
        """
        options = msgspec.structs.replace(self.options, session=session_id)
        made: object = self._app.create_session(options)
        if isawaitable(made):
            made = await cast("Awaitable[object]", made)
        if not isinstance(made, Session):
            raise UsageProblem(
                f"--app {self._name}: create_session() returned {_kind(made)}, not a Session."
            )
        if made.agent not in self._agents:
            self._agents.append(made.agent)
        return made

    async def aclose(self) -> None:
        """Close the app, or else the agents of its sessions."""
        close: Any = getattr(self._app, "aclose", None)
        if close is not None:
            await close()
            return
        for agent in self._agents:
            await agent.aclose()

    def redact(self, text: str) -> str:
        """*text* without the secrets that the flags name."""
        return text if self.redactor is None else self.redactor.redact_text(text)

    def complain(self, error: Exception) -> None:
        """Say on stderr what was wrong."""
        complain(self.redact(describe(error)) + self._advice(error))

    def _advice(self, error: Exception) -> str:
        """Which flag to look at, when the flags made the provider and its server refuses."""
        if self.model is None or not isinstance(error, ProviderError):
            return ""
        if error.code in {"auth", "permission"}:
            name = self.options.credential_env
            if name is not None:
                return f" (The key was taken from the environment variable {name}.)"
            return " (No key was sent: name the variable that holds it with --credential-env.)"
        if error.code == "not_found":
            return " (Check --model and --base-url.)"
        return ""


def load_app(name: str) -> App:
    """Import `module:attr`; the working directory is looked at first.

    Raises:
        UsageProblem: It cannot be imported, or is no app.
    """
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise UsageProblem(f"--app {name}: write it as module:attr, such as myapp:app.")
    here = os.getcwd()  # noqa: PTH109 - pathlib would be loaded for this alone
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
        if isinstance(found, type) or (callable(found) and not _is_app(found)):
            found = found()
    except Exception as error:
        raise UsageProblem(f"--app {name} cannot be loaded: {describe(error)}") from error
    if not _is_app(found):
        raise UsageProblem(
            f"--app {name} is {_kind(found)} without a method create_session(options)."
        )
    return cast("App", found)


def _is_app(value: object) -> bool:
    return callable(getattr(value, "create_session", None))


def _commands(app: App, name: str) -> dict[str, CommandDefinition]:
    given: object = getattr(app, "commands", ())
    if not given:
        return {}
    from prism.core.host import CommandDefinition

    if isinstance(given, Mapping):
        given = list(cast("Mapping[object, object]", given).values())
    if not isinstance(given, Iterable):
        raise UsageProblem(f"--app {name}: commands is {_kind(given)}, not a list.")
    found: dict[str, CommandDefinition] = {}
    for item in cast("Iterable[object]", given):
        if not isinstance(item, CommandDefinition):
            raise UsageProblem(
                f"--app {name}: commands holds {_kind(item)} where a CommandDefinition has to be."
            )
        if item.name in found:
            raise UsageProblem(f"--app {name}: two commands are named {item.name!r}.")
        found[item.name] = item
    return found


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def describe(error: BaseException) -> str:
    """An exception in words; its class too, when it is not one of Prism's."""
    text = str(error)
    if isinstance(error, PrismError | UsageProblem):
        return text
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind

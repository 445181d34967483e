"""Scripted worker models, and a session with something to remember."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prism.core import Agent, AgentEvent, ModelConfig, ModelLimits, Session
from prism.core.providers import MockProvider, ProviderRequest, done, text_delta, tool_call
from prism.core.stores import MemorySessionStore, SessionStore
from prism.memory.observational import ObservationalMemory, resolve_settings

MODEL = ModelConfig(provider="mock", model="memory")
LABEL = re.compile(r"^\[entry (\S+) \| ", re.MULTILINE)

Answer = Callable[[ProviderRequest], Iterable[Any]]


def prompt_of(request: ProviderRequest) -> str:
    """The newest thing that the worker was asked."""
    said = [message for message in request.messages if message.role == "user"]
    return said[-1].text


def entry_ids(request: ProviderRequest) -> list[str]:
    """Entries that the observer is shown."""
    return LABEL.findall(request.messages[0].text)


def known_ids(request: ProviderRequest, heading: str) -> list[str]:
    """Ids of the records under a heading of the prompt."""
    part = request.messages[0].text.split(f"{heading}:\n", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^\[([a-f0-9]{12})\]", part, re.MULTILINE)


def is_first(request: ProviderRequest) -> bool:
    """Whether the worker has said nothing yet."""
    return all(message.role == "user" for message in request.messages)


def call(name: str, **arguments: Any) -> list[Any]:
    """An answer that is one call."""
    return [tool_call(id=f"call_{name}", name=name, arguments=arguments), done()]


STOP: list[Any] = [text_delta("Done."), done()]


def note(content: str, *ids: str, relevance: str = "medium") -> dict[str, Any]:
    """An observation as a model proposes it."""
    return {"content": content, "relevance": relevance, "sourceEntryIds": list(ids)}


def observe(*notes: dict[str, Any]) -> list[Any]:
    """The call that records these."""
    return call("record_observations", observations=list(notes))


def reflect(*items: dict[str, Any], obsolete: Sequence[str] = ()) -> list[Any]:
    """The call that records these."""
    return call("record_reflections", reflections=list(items), obsolete=list(obsolete))


def drop(*ids: str) -> list[Any]:
    """The call that proposes these."""
    return call("drop_observations", ids=list(ids))


def note_each(request: ProviderRequest) -> list[Any]:
    """A perfect observer: one note for each message."""
    if not is_first(request):
        return STOP
    return observe(*(note(f"fact of {key}", key) for key in entry_ids(request)))


def reflect_on_all(request: ProviderRequest) -> list[Any]:
    """A reflector that draws one fact from all that it is shown."""
    if not is_first(request):
        return STOP
    ids = known_ids(request, "Known observations")
    return reflect({"content": f"sum of {len(ids)} facts", "supportingObservationIds": ids})


def drop_all(request: ProviderRequest) -> list[Any]:
    """A dropper that would drop everything."""
    return drop(*known_ids(request, "Known observations")) if is_first(request) else STOP


class Workers(MockProvider):
    """A worker model: one script for each of its jobs."""

    def __init__(
        self,
        observer: Answer | Sequence[Sequence[Any]] = note_each,
        reflector: Answer | Sequence[Sequence[Any]] = reflect_on_all,
        dropper: Answer | Sequence[Sequence[Any]] = drop_all,
    ) -> None:
        scripts: dict[str, Any] = {
            "record_observations": observer,
            "record_reflections": reflector,
            "drop_observations": dropper,
        }
        turns: dict[str, int] = {}

        def answer(request: ProviderRequest) -> Iterable[Any]:
            name = request.tools[0].name
            script = scripts[name]
            if callable(script):
                made: Iterable[Any] = script(request)  # type: ignore[assignment]
                return made
            turn = turns.get(name, 0)
            turns[name] = turn + 1
            return script[min(turn, len(script) - 1)]

        super().__init__(answer, id="memory")

    def asked(self, tool: str) -> list[ProviderRequest]:
        """Requests of one job."""
        return [request for request in self.requests if request.tools[0].name == tool]


def talker(text: str = "I see.") -> MockProvider:
    """A conversation model that says one thing."""
    return MockProvider([text_delta(text), done()])


def session_of(store: SessionStore | None = None, **fields: Any) -> Session:
    """A session on a conversation model."""
    fields.setdefault("provider", talker())
    agent = Agent(
        model=ModelConfig(
            provider="mock", model="talk", limits=ModelLimits(context_window=100_000)
        ),
        store=store or MemorySessionStore(),
        **fields,
    )
    return agent.session("s1")


OPTIONS = frozenset({
    "hooks", "secrets", "strategy", "on_event", "observer", "reflector", "dropper", "credential",
    "credentials", "prompts", "model",
})  # fmt: skip


def memory_of(session: Session, provider: Any = None, **fields: Any) -> ObservationalMemory:
    """The session's memory, with everything due at once; other fields are settings."""
    options: dict[str, Any] = {"model": MODEL}
    settings: dict[str, Any] = {"observe_after_tokens": 1, "reflect_after_tokens": 100_000}
    for name, value in fields.items():
        (options if name in OPTIONS else settings)[name] = value
    return ObservationalMemory(
        session,
        provider=Workers() if provider is None else provider,
        settings=resolve_settings(**settings).values,
        **options,
    )


class Heard:
    """Events that a memory told."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []

    def __call__(self, event: AgentEvent) -> None:
        self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        """Their types in order."""
        return [str(type(event).__name__) for event in self.events]

"""Which strategy still knows what: `uv run python benchmarks/memory/compare.py`.

Thirty facts are planted in each of six real sessions. The session is fed in seven parts, with a
compaction after each of the first six. After some of them every fact that was said so far is asked
for. It counts as answerable when the context holds it: raw, or in the summary. It counts as
recallable when a record that is shown names the message that it is in.

No model takes part: the workers follow a script, a perfect one and one that overlooks half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import anyio
from material import Fact, chained, planted, real_sessions
from scripted import Keep, Observer, Summariser, keep_all, keep_half

from prism.core import (
    Agent,
    Message,
    MessageEntry,
    ModelConfig,
    NothingToCompact,
    Session,
    encode,
    rebuild_session_context,
)
from prism.core.compaction import (
    CompactionStrategy,
    DefaultCompactionStrategy,
    estimate_message_tokens,
    estimate_text_tokens,
)
from prism.core.providers import MockProvider
from prism.core.stores import MemorySessionStore
from prism.memory.llm import LlmCompactionStrategy
from prism.memory.observational import (
    ObservationalCompactionStrategy,
    ObservationalMemory,
    ObservationalMemorySettings,
    build_projection,
)

COMPACTIONS = 6
ASKED_AFTER = (1, 3, 6)
KEEP_RECENT = 8
KEEP_TOKENS = 4_000
MODEL = ModelConfig(provider="mock", model="scripted")


@dataclass(kw_only=True)
class Score:
    """What one strategy knew, over all sessions.

    Attributes:
        known: Facts in the context, by the number of compactions before.
        recallable: Facts that a shown record leads to, likewise.
        asked: Facts that were asked for, likewise.
        tokens: Size of the context after the last compaction, of each session.
        calls: Calls of the worker model.
    """

    name: str
    known: dict[int, int] = field(default_factory=dict[int, int])
    recallable: dict[int, int] = field(default_factory=dict[int, int])
    asked: dict[int, int] = field(default_factory=dict[int, int])
    tokens: list[int] = field(default_factory=list[int])
    calls: int = 0

    def share(self, found: dict[int, int], after: int) -> str:
        """A percentage."""
        return f"{100 * found.get(after, 0) / self.asked[after]:.0f} %"


class Contestant:
    """One strategy in one session."""

    provider: MockProvider | None = None

    def __init__(self, session: Session, strategy: CompactionStrategy) -> None:
        self.session = session
        self.strategy = strategy

    async def prepare(self) -> None:
        """What has to be done before a compaction."""

    async def compact(self) -> None:
        """Compact once."""
        await self.prepare()
        try:
            await self.session.compact(strategy=self.strategy)
        except NothingToCompact:
            return


class Remembering(Contestant):
    """Observational memory, flushed before each compaction."""

    def __init__(self, session: Session, keep: Keep) -> None:
        self.provider = Observer(keep)
        settings = ObservationalMemorySettings(observe_after_tokens=1, max_chunks_per_flush=256)
        self.memory = ObservationalMemory(
            session, provider=self.provider, model=MODEL, settings=settings
        )
        super().__init__(session, ObservationalCompactionStrategy(keep_recent_entries=KEEP_RECENT))

    async def prepare(self) -> None:
        result = await self.memory.flush()
        assert not result.failed, result


def by_default(session: Session) -> Contestant:
    """Without a model."""
    return Contestant(session, DefaultCompactionStrategy(keep_recent_entries=KEEP_RECENT))


def by_summary(session: Session, keep: Keep) -> Contestant:
    """By a summary model."""
    provider = Summariser(keep)
    contestant = Contestant(
        session,
        LlmCompactionStrategy(provider=provider, model=MODEL, keep_recent_tokens=KEEP_TOKENS),
    )
    contestant.provider = provider
    return contestant


STRATEGIES: list[tuple[str, Callable[[Session], Contestant]]] = [
    ("default", by_default),
    ("llm, perfect worker", lambda session: by_summary(session, keep_all)),
    ("llm, lossy worker", lambda session: by_summary(session, keep_half)),
    ("observational, perfect worker", lambda session: Remembering(session, keep_all)),
    ("observational, lossy worker", lambda session: Remembering(session, keep_half)),
]


def parts(messages: Sequence[MessageEntry]) -> Iterator[Sequence[MessageEntry]]:
    """The session in as many parts as there are compactions, and one more."""
    count = COMPACTIONS + 1
    for number in range(count):
        yield messages[len(messages) * number // count : len(messages) * (number + 1) // count]


async def play(
    score: Score,
    make: Callable[[Session], Contestant],
    messages: Sequence[MessageEntry],
    facts: Sequence[Fact],
) -> None:
    """One session with one strategy."""
    store = MemorySessionStore()
    agent = Agent(model=MODEL, provider=MockProvider(), store=store)
    session = agent.session("s")
    contestant = make(session)
    said: set[str] = set()
    for number, part in enumerate(parts(messages), 1):
        await session.entries()
        await store.append("s", chained(part, "s", session.leaf_id))
        await session.reload()
        said.update(entry.id for entry in part)
        if number > COMPACTIONS:
            break
        await contestant.compact()
        if number in ASKED_AFTER:
            await ask(score, session, [one for one in facts if one.entry_id in said], number)
    if contestant.provider is not None:
        score.calls += len(contestant.provider.requests)


async def ask(score: Score, session: Session, facts: Sequence[Fact], number: int) -> None:
    """Ask for every fact that was said so far."""
    entries = await session.entries()
    context = rebuild_session_context(entries)
    text = "\n".join([*context.summaries, *map(shown, context.messages)])
    visible = build_projection(entries).visible
    sources = {
        key for one in (visible.observations if visible else ()) for key in one.source_entry_ids
    }
    known = sum(one.token in text for one in facts)
    recallable = sum(one.token in text or one.entry_id in sources for one in facts)
    score.known[number] = score.known.get(number, 0) + known
    score.recallable[number] = score.recallable.get(number, 0) + recallable
    score.asked[number] = score.asked.get(number, 0) + len(facts)
    if number == COMPACTIONS:
        score.tokens.append(
            sum(map(estimate_message_tokens, context.messages))
            + sum(map(estimate_text_tokens, context.summaries))
        )


def shown(message: Message) -> str:
    """All of a message, as text."""
    return encode(message).decode()


async def main() -> None:
    """Print the table."""
    scores: list[Score] = []
    sessions = [(name, *planted(name, messages)) for name, messages in real_sessions()]
    for name, make in STRATEGIES:
        score = Score(name=name)
        for _, messages, facts in sessions:
            await play(score, make, messages, facts)
        scores.append(score)
    asked = ", ".join(f"{scores[0].asked[after]} after {after}" for after in ASKED_AFTER)
    print(f"{len(sessions)} sessions, {COMPACTIONS} compactions each; facts asked for: {asked}")
    print()
    head = " | ".join(f"known after {after}" for after in ASKED_AFTER)
    print(f"| strategy | {head} | recallable after {COMPACTIONS} | context tokens | model calls |")
    print("|---|" + "---|" * (len(ASKED_AFTER) + 3))
    for score in scores:
        known = " | ".join(score.share(score.known, after) for after in ASKED_AFTER)
        recallable = score.share(score.recallable, COMPACTIONS)
        tokens = sum(score.tokens) // len(score.tokens)
        print(f"| {score.name} | {known} | {recallable} | {tokens:,} | {score.calls:,} |")


if __name__ == "__main__":
    anyio.run(main)

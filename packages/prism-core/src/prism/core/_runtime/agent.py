"""An agent: what all its sessions share. It is configuration, and holds nothing that happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import structs

from prism.core._contracts import (
    CompactionOptions,
    ContextProvider,
    InputBuilder,
    PermissionPolicy,
    PromptBuilder,
    Provider,
    RequestPolicy,
    RetryOptions,
    SessionStore,
    Tool,
    ToolSpec,
)
from prism.core._errors import UsageError
from prism.core._middleware import MiddlewareRegistry
from prism.core._runtime.checks import (
    check_compaction,
    check_limits,
    check_retry,
    is_name,
    thinking_level as check_level,
    tool_rounds,
)
from prism.core._runtime.options import RunOptions
from prism.core._runtime.session import Session
from prism.core._support.ids import Clock, IdMaker, random_id, system_clock
from prism.core._support.limits import positive_int
from prism.core._support.redaction import SecretRedactor
from prism.core._wire import ModelConfig, ProviderOptions, UsageLimits
from prism.core.prompt import DefaultInputBuilder, DefaultPromptBuilder
from prism.core.providers import ProviderRegistry, merge_request_options
from prism.core.stores import MemorySessionStore
from prism.core.tools import ToolRegistry

if TYPE_CHECKING:
    from prism.core.providers import ThinkingTable

DEFAULT_MAX_TOOL_ROUNDS: Final = 32
DEFAULT_MAX_PARALLEL_TOOLS: Final = 8
DEFAULT_TOOL_CANCEL_GRACE_MS: Final = 2_000


class Agent:
    """A model, its provider and its tools, ready to hold conversations.

    Args:
        model: The model of sessions that have chosen no other.
        provider: One provider, which then serves every model, or a `ProviderRegistry`.
        tools: What the model may call.
        store: Where sessions live; default: in memory.
        system: The system prompt, or its parts, the most stable first.
        context: Asked once a run for facts that the model should have.
        thinking_level: One of `THINKING_LEVELS`; default: the model's own.
        thinking: How levels are put to models; default: `DEFAULT_THINKING`.
        options: For every provider request.
        request_policies: Change each request before it is sent, in order.
        middleware: Hooks of runs.
        permissions: Asked for every call; default: every tool that was given may be called.
        redactor: Known secrets that must not be stored or shown.
        compaction: How sessions compact; default: only when `compact()` is called.
        retry: How provider turns are retried; `False`: not at all.
        limits: What a run may use.
        max_tool_rounds: Batches of calls that a run executes; default 32.
        max_parallel_tools: Calls of one batch that run at a time; default 8.
        tool_cancel_grace_ms: How long an aborted tool gets to stop; default 2,000.
        input_builder: Turns input into messages.
        prompt_builder: Lays out requests.
        clock: Seconds since the epoch; default: the machine's.
        id_maker: Makes ids from a prefix; default: random ones.
    """

    def __init__(
        self,
        *,
        model: ModelConfig,
        provider: Provider | ProviderRegistry,
        tools: Sequence[Tool] | ToolRegistry = (),
        store: SessionStore | None = None,
        system: str | Sequence[str] | None = None,
        context: Sequence[ContextProvider] = (),
        thinking_level: str | None = None,
        thinking: ThinkingTable | None = None,
        options: ProviderOptions | None = None,
        request_policies: Sequence[RequestPolicy] = (),
        middleware: MiddlewareRegistry | None = None,
        permissions: PermissionPolicy | None = None,
        redactor: SecretRedactor | None = None,
        compaction: CompactionOptions | None = None,
        retry: RetryOptions | Literal[False] | None = None,
        limits: UsageLimits | None = None,
        max_tool_rounds: int = DEFAULT_MAX_TOOL_ROUNDS,
        max_parallel_tools: int = DEFAULT_MAX_PARALLEL_TOOLS,
        tool_cancel_grace_ms: int = DEFAULT_TOOL_CANCEL_GRACE_MS,
        input_builder: InputBuilder | None = None,
        prompt_builder: PromptBuilder | None = None,
        clock: Clock = system_clock,
        id_maker: IdMaker = random_id,
    ) -> None:
        if compaction is not None:
            check_compaction("compaction", compaction)
        if retry is not None:
            check_retry("retry", retry)
        if limits is not None:
            check_limits("limits", limits)
        registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self.model = model
        self.provider = provider
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in registry.list()}
        self.tool_specs: tuple[ToolSpec, ...] = tuple(
            ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in self.tools.values()
        )
        self.store: SessionStore = MemorySessionStore() if store is None else store
        self.system_parts: tuple[str, ...] = (
            () if system is None else (system,) if isinstance(system, str) else tuple(system)
        )
        self.context: tuple[ContextProvider, ...] = tuple(context)
        self.thinking_level: str | None = check_level(thinking_level)
        self.thinking: ThinkingTable | None = thinking
        self.options = options
        self.request_policies: tuple[RequestPolicy, ...] = tuple(request_policies)
        self.middleware = middleware
        self.permissions = permissions
        self.redactor: SecretRedactor = SecretRedactor() if redactor is None else redactor
        self.compaction = compaction
        self.retry = retry
        self.limits = limits
        self.max_tool_rounds: int = tool_rounds("max_tool_rounds", max_tool_rounds)
        self.max_parallel_tools: int = positive_int(
            "max_parallel_tools", max_parallel_tools, cap=1_024
        )
        self.tool_cancel_grace_ms: int = positive_int(
            "tool_cancel_grace_ms", tool_cancel_grace_ms, cap=600_000
        )
        self.input_builder: InputBuilder = input_builder or DefaultInputBuilder()
        self.prompt_builder: PromptBuilder = prompt_builder or DefaultPromptBuilder()
        self.clock = clock
        self.id_maker = id_maker

    def session(self, id: str | None = None) -> Session:  # noqa: A002
        """A session of the store, or a new one. It is read at its first use.

        Two `Session` objects of one id are two writers: the second one to write gets
        `StoreConflict`.
        """
        session_id = self.id_maker("session") if id is None else id
        if not is_name(session_id):
            raise UsageError(
                f"A session id must be a string that is not empty, not {session_id!r}."
            )
        return Session(self, session_id)

    async def aclose(self) -> None:
        """Close the store and the provider, or every provider of the registry."""
        try:
            await self.store.aclose()
        finally:
            close: Any = getattr(self.provider, "aclose", None)
            if close is not None:
                await close()

    # For runs

    def resolve_provider(self, model: ModelConfig) -> Provider:
        """The provider that serves *model*.

        Raises:
            RegistryError: None is registered under `model.provider`.
        """
        provider = self.provider
        if isinstance(provider, ProviderRegistry):
            return provider.resolve(model.provider)
        return provider

    def compaction_for(self, options: RunOptions) -> CompactionOptions | None:
        """How a run may compact; `None`: not."""
        if options.compaction is False:
            return None
        return (
            self.compaction
            if options.compaction is None
            else self.merge_compaction(options.compaction)
        )

    def merge_compaction(
        self, options: CompactionOptions | None, fields: Mapping[str, Any] | None = None
    ) -> CompactionOptions:
        """*options* and *fields* over the agent's own; the secrets of all are kept.

        Raises:
            UsageError: a field is unknown, or its value cannot be.
        """
        merged = self.compaction or CompactionOptions()
        given = dict(fields or {})
        unknown = sorted(set(given) - set(CompactionOptions.__struct_fields__))
        if unknown:
            raise UsageError(
                f"A compaction has no option {', '.join(map(repr, unknown))}; its options are "
                f"{', '.join(CompactionOptions.__struct_fields__)}.",
                details={"unknown": unknown},
            )
        if options is not None:
            check_compaction("options", options)
            for name in CompactionOptions.__struct_fields__:
                if (value := getattr(options, name)) is not None:
                    given.setdefault(name, value)
        if given:
            merged_secrets = (*merged.secrets, *given.pop("secrets", ()))
            merged = structs.replace(merged, **given, secrets=merged_secrets)
            check_compaction("options", merged)
        return merged

    def retry_for(self, options: RunOptions) -> RetryOptions | None:
        """How a run's turns are retried; `None`: not at all."""
        chosen = self.retry if options.retry is None else options.retry
        return None if isinstance(chosen, bool) else chosen or RetryOptions()

    def options_for(self, session_id: str, options: RunOptions) -> ProviderOptions:
        """A request's options: session id and cache key are always stamped."""
        merged = merge_request_options(self.options, options.options)
        return structs.replace(
            merged,
            session_id=merged.session_id or session_id,
            cache_key=merged.cache_key or session_id,
        )

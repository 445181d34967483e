"""What the setup of an extension works with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from prism.core._contracts import (
    CommandDefinition,
    CompactionStrategy,
    ContextProvider,
    CredentialResolver,
    InputBuilder,
    MiddlewarePolicy,
    PromptBuilder,
    Provider,
    RequestPolicy,
    ResourceLoader,
    RetryPolicy,
    SettingsProvider,
    Tool,
)
from prism.core._errors import ExtensionError
from prism.core._middleware import Handler, MiddlewareRegistry
from prism.core._wire import ModelConfig
from prism.core.extensions._events import (
    ExtensionEventBus,
    HandlerFailure,
    check_subscription,
)
from prism.core.extensions._kinds import (
    AgentFactory,
    AuthMethod,
    ContributionRegistries,
    ProviderPackage,
    StoreFactory,
)
from prism.core.extensions._registry import ContributionRegistry
from prism.core.extensions._stage import Change, Stage
from prism.core.prompt import Skill, SystemPart

T = TypeVar("T")

Phase: TypeAlias = Literal["setup", "loading", "loaded", "ended"]


class Life:
    """Where one extension is between the beginning of its setup and its end."""

    __slots__ = ("name", "phase", "stage")

    def __init__(self, name: str, stage: Stage) -> None:
        self.name: str = name
        self.stage: Stage = stage
        self.phase: Phase = "setup"

    def during_setup(self) -> Stage:
        """The stage, while the setup runs.

        Raises:
            ExtensionError: `setup_over`.
        """
        if self.phase != "setup":
            raise ExtensionError(
                f"Extension {self.name!r} registers something after its setup; all that it "
                "contributes is registered in setup.",
                code="setup_over",
                details={"extension": self.name},
            )
        return self.stage


class Contributions(Generic[T]):
    """A kernel's registry of one kind, as one extension sees it while it is set up."""

    __slots__ = ("_life", "_registry")

    def __init__(self, registry: ContributionRegistry[T], life: Life) -> None:
        self._registry: ContributionRegistry[T] = registry
        self._life: Life = life

    def register(self, name: str, value: T) -> None:
        """Contribute *value*, with the extension as its source.

        It is in the registry when the whole load has succeeded, and until the extension is
        unloaded.

        Args:
            name: Begins with a letter or digit and has at most 128 letters, digits and
                `. _ : / @ -`; it must be free.
            value: Of the registry's kind.

        Raises:
            RegistryError: `duplicate_name`, naming both sources, `invalid_name` or
                `invalid_value`.
            ExtensionError: `setup_over`.
        """
        stage = self._life.during_setup()
        stage.contribute(self._registry, name, value, self._life.name)

    def get(self, name: str) -> T | None:
        """What has that name, or will have it after this load; `None` when nothing has."""
        staged = self._life.stage.contribution(self._registry, name)
        return self._registry.get(name) if staged is None else staged[0]

    def resolve(self, name: str) -> T:
        """What has that name, or will have it after this load.

        Raises:
            RegistryError: `unknown_name`, listing the known ones.
        """
        staged = self._life.stage.contribution(self._registry, name)
        if staged is not None:
            value: T = staged[0]
            return value
        if name not in self._registry:
            also = self._life.stage.contribution_names(self._registry)
            raise self._registry.unknown(name, also=also)
        return self._registry.resolve(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that is taken, or will be after this load."""
        return (
            *self._registry.names,
            *self._life.stage.contribution_names(self._registry),
        )

    def __contains__(self, name: object) -> bool:
        return name in self.names


class ExtensionEvents:
    """A kernel's event bus, as one extension sees it."""

    __slots__ = ("_bus", "_life")

    def __init__(self, bus: ExtensionEventBus, life: Life) -> None:
        self._bus: ExtensionEventBus = bus
        self._life: Life = life

    def on(self, topic: str, handler: Callable[[Any], Any]) -> Callable[[], None]:
        """Call *handler* with what is emitted to *topic*, until the extension is unloaded.

        Args:
            topic: As for `ExtensionEventBus.on`.
            handler: Sync or async, with one argument.

        Returns:
            A function that takes the handler out before that.

        Raises:
            UsageError: `invalid_name` or `invalid_handler`.
            ExtensionError: `setup_over`.
        """
        stage = self._life.during_setup()
        check_subscription(topic, handler)
        source = self._life.name
        change = Change(source, lambda: self._bus.on(topic, handler, source=source))
        stage.add(change)
        return change.take_back

    async def emit(self, topic: str, payload: Any = None) -> tuple[HandlerFailure, ...]:
        """Call the handlers of *topic*, as `ExtensionEventBus.emit` does.

        Raises:
            ExtensionError: `not_loaded` before the load is complete, since a setup has no
                effect, and after the extension was unloaded.
            UsageError: `event_loop`.
        """
        if self._life.phase != "loaded":
            raise ExtensionError(
                f"Extension {self._life.name!r} emits to {topic!r} while it is not loaded; emit "
                "from what it contributes, not from its setup.",
                code="not_loaded",
                details={"extension": self._life.name},
            )
        return await self._bus.emit(topic, payload)


class ExtensionApi:
    """What `setup(api)` gets: the kernel's registries, middleware and event bus.

    Nothing that is registered is there for others before the whole load has succeeded.

    Attributes:
        name: The extension's own name, the source of all that it registers.
        events: The event bus.
        agents: And all the other kinds: see `ContributionRegistries`.
    """

    def __init__(
        self,
        life: Life,
        *,
        registries: ContributionRegistries,
        middleware: MiddlewareRegistry,
        events: ExtensionEventBus,
    ) -> None:
        self._life: Life = life
        self._middleware: MiddlewareRegistry = middleware
        self.name: str = life.name
        self.events: ExtensionEvents = ExtensionEvents(events, life)
        self.agents: Contributions[AgentFactory] = Contributions(registries.agents, life)
        self.auth_methods: Contributions[AuthMethod] = Contributions(registries.auth_methods, life)
        self.commands: Contributions[CommandDefinition] = Contributions(registries.commands, life)
        self.compaction_strategies: Contributions[CompactionStrategy] = Contributions(
            registries.compaction_strategies, life
        )
        self.context_providers: Contributions[ContextProvider] = Contributions(
            registries.context_providers, life
        )
        self.credential_resolvers: Contributions[CredentialResolver] = Contributions(
            registries.credential_resolvers, life
        )
        self.input_builders: Contributions[InputBuilder] = Contributions(
            registries.input_builders, life
        )
        self.models: Contributions[ModelConfig] = Contributions(registries.models, life)
        self.prompt_builders: Contributions[PromptBuilder] = Contributions(
            registries.prompt_builders, life
        )
        self.provider_packages: Contributions[ProviderPackage] = Contributions(
            registries.provider_packages, life
        )
        self.providers: Contributions[Provider] = Contributions(registries.providers, life)
        self.request_policies: Contributions[RequestPolicy] = Contributions(
            registries.request_policies, life
        )
        self.resource_loaders: Contributions[ResourceLoader] = Contributions(
            registries.resource_loaders, life
        )
        self.retry_policies: Contributions[RetryPolicy] = Contributions(
            registries.retry_policies, life
        )
        self.settings_providers: Contributions[SettingsProvider] = Contributions(
            registries.settings_providers, life
        )
        self.skills: Contributions[Skill] = Contributions(registries.skills, life)
        self.store_factories: Contributions[StoreFactory] = Contributions(
            registries.store_factories, life
        )
        self.system_prompts: Contributions[SystemPart] = Contributions(
            registries.system_prompts, life
        )
        self.tools: Contributions[Tool] = Contributions(registries.tools, life)

    def use(
        self,
        hook: str,
        handler: Handler,
        *,
        name: str | None = None,
        order: int = 0,
        policy: MiddlewarePolicy | None = None,
    ) -> Callable[[], None]:
        """Add a middleware to the kernel's registry, as `MiddlewareRegistry.use` does.

        It has an effect on the agents that the host gives that registry.

        Args:
            hook: One of `HOOKS`.
            handler: Sync or async, of the payload, or of the payload and `next`.
            name: For reports; default: the extension's name and the handler's.
            order: Lower numbers run first.
            policy: What its failure does; default: the registry's.

        Returns:
            A function that takes it out before the extension is unloaded.

        Raises:
            UsageError: `unknown_hook` or `invalid_handler`.
            ExtensionError: `setup_over`.
        """
        stage = self._life.during_setup()
        if name is None:
            own: str = getattr(handler, "__qualname__", type(handler).__qualname__)
            name = f"{self.name}:{own}"
        # On a registry that nobody uses, so that a mistake is found where it is made.
        MiddlewareRegistry().use(hook, handler, name=name, order=order, policy=policy)
        middleware = self._middleware
        change = Change(
            self.name,
            lambda: middleware.use(hook, handler, name=name, order=order, policy=policy),
        )
        stage.add(change)
        return change.take_back

"""Loading extensions, and taking them out again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, NoReturn, cast

import msgspec

from prism.core._contracts import Extension
from prism.core._errors import ExtensionError, PrismError
from prism.core._middleware import MiddlewareRegistry
from prism.core._support.errors import error_info
from prism.core._support.registry import list_names
from prism.core.extensions._api import ExtensionApi, Life
from prism.core.extensions._events import ExtensionEventBus
from prism.core.extensions._guard import Watch, watched
from prism.core.extensions._kinds import ContributionRegistries
from prism.core.extensions._registry import NAME_RULE, is_name
from prism.core.extensions._stage import Change, Stage

MAX_EXTENSIONS: Final = 1_000
"""How many extensions a kernel holds."""


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """An extension as it was when its load began."""

    name: str
    requires: tuple[str, ...]
    setup: Callable[[Any], Any]


class _Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """An extension that is loaded."""

    plan: _Plan
    life: Life
    changes: list[Change]


class ExtensionKernel:
    """Collects what extensions contribute. It starts nothing, and no agent knows of it.

    Args:
        registries: Where contributions go; default: new ones.
        middleware: Where middleware goes; default: a new registry.
        events: The bus that extensions share; default: a new one.

    Attributes:
        registries: What the host chooses from.
        middleware: What the host gives to its agents.
        events: What the host emits to and listens on.
    """

    def __init__(
        self,
        *,
        registries: ContributionRegistries | None = None,
        middleware: MiddlewareRegistry | None = None,
        events: ExtensionEventBus | None = None,
    ) -> None:
        self.registries: ContributionRegistries = (
            ContributionRegistries() if registries is None else registries
        )
        self.middleware: MiddlewareRegistry = (
            MiddlewareRegistry() if middleware is None else middleware
        )
        self.events: ExtensionEventBus = ExtensionEventBus() if events is None else events
        self._loaded: dict[str, _Loaded] = {}
        self._busy: bool = False

    @property
    def loaded(self) -> tuple[str, ...]:
        """Names of the loaded extensions, in the order in which they were set up."""
        return tuple(self._loaded)

    async def load(self, extensions: Iterable[Extension]) -> None:
        """Set *extensions* up, and register what they contribute: all of it, or nothing.

        The order is that of *extensions*, except that what another one requires comes before it.
        A setup that leaves a task or a thread behind is refused. Both are seen when the setup's
        own code starts them; what its tasks start in turn, timers, processes and open files are
        not.

        Args:
            extensions: Set up in the calling task, sync ones too.

        Raises:
            ExtensionError: Before any setup has run: `invalid_extension`, `duplicate_name`,
                `missing_requirement`, `requirement_cycle`, `too_many_extensions`, or
                `kernel_busy` during another load. After that, with nothing changed:
                `extension_failed` when a setup raised (its exception is the cause) or what it
                registered was taken meanwhile; `setup_left_running`.
        """
        self._begin()
        try:
            plans = self._in_order([_plan(each) for each in extensions])
            stage = Stage()
            lives: list[Life] = []
            try:
                for plan in plans:
                    life = Life(plan.name, stage)
                    lives.append(life)
                    await self._set_up(plan, life)
                changes = stage.commit()
            except BaseException:
                stage.drop()
                for life in lives:
                    life.phase = "ended"
                raise
            for plan, life in zip(plans, lives, strict=True):
                life.phase = "loaded"
                self._loaded[plan.name] = _Loaded(
                    plan=plan, life=life, changes=changes.get(plan.name, [])
                )
        finally:
            self._busy = False

    async def unload(self, name: str) -> None:
        """Take out everything that the extension of that name added, and nothing else.

        What a host took from a registry before, and what is running, is not changed.

        Raises:
            ExtensionError: `not_loaded`, listing those that are; `still_required`, naming those
                that require it; `kernel_busy` during a load.
        """
        self._begin()
        try:
            loaded = self._loaded.get(name)
            if loaded is None:
                raise ExtensionError(
                    f"No extension {name!r} is loaded. {list_names(self._loaded)}",
                    code="not_loaded",
                    details={"extension": name},
                )
            users = [other for other, each in self._loaded.items() if name in each.plan.requires]
            if users:
                raise ExtensionError(
                    f"Extension {name!r} is required by {', '.join(users)}; unload that first.",
                    code="still_required",
                    details={"extension": name, "required_by": users},
                )
            for change in reversed(loaded.changes):
                change.take_back()
            loaded.life.phase = "ended"
            del self._loaded[name]
        finally:
            self._busy = False

    def _begin(self) -> None:
        if self._busy:
            raise ExtensionError(
                "The kernel is loading or unloading already; do it once the other has ended.",
                code="kernel_busy",
            )
        self._busy = True

    async def _set_up(self, plan: _Plan, life: Life) -> None:
        api = ExtensionApi(
            life, registries=self.registries, middleware=self.middleware, events=self.events
        )
        watch = Watch()
        try:
            with watch:
                result = plan.setup(api)
            if inspect.isawaitable(result):
                result = await watched(result, watch)
        except Exception as error:
            details: dict[str, Any] = {"extension": plan.name}
            if isinstance(error, PrismError):
                details["cause"] = error.code
            raise ExtensionError(
                f"Extension {plan.name!r} could not be set up: {error_info(error).message}",
                details=details,
            ) from error
        finally:
            life.phase = "loading"
        if result is not None:
            raise ExtensionError(
                f"The setup of extension {plan.name!r} returned a {type(result).__name__}; it "
                "registers on its argument and returns nothing.",
                details={"extension": plan.name},
            )
        left = watch.left()
        if left:
            raise ExtensionError(
                f"The setup of extension {plan.name!r} left running: {', '.join(left[:10])}. Setup "
                "registers and starts nothing; stop them, and start them from what it contributes.",
                code="setup_left_running",
                details={"extension": plan.name, "left": left[:10]},
            )

    def _in_order(self, plans: Sequence[_Plan]) -> list[_Plan]:
        """*plans*, each behind what it requires."""
        self._check_names(plans)
        present = {plan.name for plan in plans}.union(self._loaded)
        for plan in plans:
            missing = [name for name in plan.requires if name not in present]
            if missing:
                raise ExtensionError(
                    f"Extension {plan.name!r} requires {', '.join(missing)}, which is neither "
                    "loaded nor loaded with it.",
                    code="missing_requirement",
                    details={"extension": plan.name, "missing": missing},
                )
        _check_cycles(plans)
        done = set(self._loaded)
        waiting = list(plans)
        ordered: list[_Plan] = []
        while waiting:
            # There is one, since there is no cycle.
            plan = next(each for each in waiting if done.issuperset(each.requires))
            waiting.remove(plan)
            done.add(plan.name)
            ordered.append(plan)
        return ordered

    def _check_names(self, plans: Sequence[_Plan]) -> None:
        seen = set(self._loaded)
        for plan in plans:
            if plan.name in seen:
                again = "loaded already" if plan.name in self._loaded else "given twice"
                raise ExtensionError(
                    f"Extension {plan.name!r} is {again}; a kernel holds each name once.",
                    code="duplicate_name",
                    details={"extension": plan.name},
                )
            seen.add(plan.name)
        if len(seen) > MAX_EXTENSIONS:
            raise ExtensionError(
                f"A kernel holds at most {MAX_EXTENSIONS} extensions, and would hold {len(seen)}.",
                code="too_many_extensions",
                details={"limit": MAX_EXTENSIONS},
            )


def _plan(extension: object) -> _Plan:
    if isinstance(extension, type) or not isinstance(extension, Extension):
        what = extension.__name__ if isinstance(extension, type) else type(extension).__name__
        _invalid(f"{what} is no extension: it needs a name, requires and setup, on an instance.")
    name = cast("object", extension.name)
    requires = cast("object", extension.requires)
    if not isinstance(name, str) or not is_name(name):
        _invalid(f"The name of an extension {NAME_RULE}: {str(name)[:80]!r} is none.")
    if isinstance(requires, str) or not isinstance(requires, Sequence):
        _invalid(f"requires of extension {name!r} must be a list of names.")
    names = tuple(str(each) for each in cast("Sequence[object]", requires))
    return _Plan(name=name, requires=names, setup=extension.setup)


def _invalid(message: str) -> NoReturn:
    raise ExtensionError(message, code="invalid_extension")


def _check_cycles(plans: Sequence[_Plan]) -> None:
    try:
        TopologicalSorter({plan.name: plan.requires for plan in plans}).prepare()
    except CycleError as error:
        # Along the arrows, which the library gives from the required one to what requires it.
        cycle: list[str] = [*reversed(error.args[1])]
        raise ExtensionError(
            f"Extensions require each other: {' → '.join(cycle)}. Break the cycle.",
            code="requirement_cycle",
            details={"cycle": cycle},
        ) from None

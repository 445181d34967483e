"""Thinking levels: one scale for hosts, each model's own body on the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import structs

from prism.core._contracts import Notice
from prism.core._errors import UsageError
from prism.core._wire import (
    THINKING_LEVELS,
    ModelConfig,
    ProviderOptions,
    normalize_thinking_level,
)
from prism.core.providers._thinking import table

_NONE: Final = "none"

# A vendor before the name, and a region before it, as in `us.anthropic.claude-opus-5`.
_VENDOR: Final = re.compile(r"^(?:[a-z]{2,6}(?:-gov)?\.)?[a-z]+\.(?=[a-z])")
_VERSION: Final = re.compile(r"[@:].*$")


class ThinkingFamily(msgspec.Struct, frozen=True, kw_only=True):
    """Models that are asked alike.

    Attributes:
        name: As `ModelConfig.compat["thinkingFamily"]` may name it.
        levels: What each of `THINKING_LEVELS` becomes: a value for the template, `>level` for the
            one it is clamped to, or `None` to send nothing, as for a level that is left out.
        templates: Part of the request's body by API, with `"$value"` in the value's place.
        bodies: By API and level: parts of the body that stand instead of the filled template.
        refuses_sampling: Whether temperature and its like must not be sent while it thinks.
        fixed: Parts of names of models that are asked nothing, although they belong here.

    Raises:
        UsageError: `invalid_thinking_table`: an unknown level, or a clamp that leads nowhere.
    """

    name: str
    levels: Mapping[str, Any]
    templates: Mapping[str, Mapping[str, Any]]
    bodies: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}
    refuses_sampling: bool = False
    fixed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = {*self.levels, *(level for levels in self.bodies.values() for level in levels)}
        for level in named:
            if level not in THINKING_LEVELS:
                raise _invalid(f"family {self.name!r} has the unknown level {level!r}")
        for level in self.levels:
            seen = {level}
            while (clamp := _clamp(self.levels[level])) is not None:
                if clamp in seen or clamp not in self.levels:
                    raise _invalid(
                        f"family {self.name!r} clamps {level!r} to {clamp!r}, which "
                        "is no level of it"
                    )
                seen.add(clamp)
                level = clamp


class ThinkingTable(msgspec.Struct, frozen=True, kw_only=True):
    """Families, and which models belong to them. `DEFAULT_THINKING` is what Prism knows.

    Attributes:
        families: By name.
        models: Family by the longest prefix of a model's name, in lower case, with dots written
            as dashes. `provider/prefix` holds for the models of that provider alone, and wins.
        providers: Family by provider id, for gateways that translate one form for every model.

    Raises:
        UsageError: `invalid_thinking_table`: a model or a provider names an unknown family.
    """

    families: Mapping[str, ThinkingFamily]
    models: Mapping[str, str]
    providers: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        for name, family in (*self.models.items(), *self.providers.items()):
            if family != _NONE and family not in self.families:
                raise _invalid(f"{name!r} belongs to the unknown family {family!r}")

    def extended(
        self,
        *,
        families: Mapping[str, ThinkingFamily] | None = None,
        models: Mapping[str, str] | None = None,
        providers: Mapping[str, str] | None = None,
    ) -> ThinkingTable:
        """This table with a host's own lines, which win.

        Raises:
            UsageError: `invalid_thinking_table`.
        """
        return ThinkingTable(
            families={**self.families, **(families or {})},
            models={**self.models, **(models or {})},
            providers={**self.providers, **(providers or {})},
        )


def _clamp(value: object) -> str | None:
    return value[1:] if isinstance(value, str) and value.startswith(">") else None


def _invalid(what: str) -> UsageError:
    return UsageError(f"Thinking table: {what}.", code="invalid_thinking_table")


def _default() -> ThinkingTable:
    families = {
        name: ThinkingFamily(
            name=name,
            levels=dict(zip(THINKING_LEVELS, row, strict=True)),
            templates=table.TEMPLATES[name],
            bodies=table.BODIES.get(name, {}),
            refuses_sampling=name in table.NO_SAMPLING,
            fixed=table.FIXED.get(name, ()),
        )
        for name, row in table.LEVELS.items()
    }
    return ThinkingTable(families=families, models=table.MODELS, providers=table.PROVIDERS)


DEFAULT_THINKING: Final = _default()
"""The families that Prism knows."""


class ThinkingCompat(msgspec.Struct, frozen=True, kw_only=True):
    """How a level is put to a model.

    Attributes:
        level: What was asked.
        sent: The level that the model gets.
        body: Part of the request's body.
        drop: Keys that the request's body must not have beside it.
    """

    family: str
    level: str
    sent: str
    body: dict[str, Any]
    drop: tuple[str, ...] = ()

    @property
    def clamped(self) -> bool:
        """Whether the model has no such level."""
        return self.sent != self.level


def thinking_family_for_model(
    model: ModelConfig, *, thinking: ThinkingTable = DEFAULT_THINKING
) -> str:
    """The name of the family that a model belongs to; `none` when nothing is to be sent.

    `model.compat["thinkingFamily"]` decides before the table does.

    Raises:
        UsageError: `unknown_thinking_family`.
    """
    chosen = (model.compat or {}).get("thinkingFamily")
    if chosen is not None:
        if chosen != _NONE and (not isinstance(chosen, str) or chosen not in thinking.families):
            known = ", ".join(sorted(thinking.families))
            raise UsageError(
                f"Model {model.model!r} names the unknown thinking family {chosen!r}; "
                f"known: {known}.",
                code="unknown_thinking_family",
            )
        return str(chosen)
    if model.provider in thinking.providers:
        return thinking.providers[model.provider]
    name = _plain_name(model.model)
    for candidate in (f"{model.provider}/{name}", name):
        found = [prefix for prefix in thinking.models if _begins(candidate, prefix)]
        if found:
            family = thinking.models[max(found, key=len)]
            is_fixed = family != _NONE and any(
                part in name for part in thinking.families[family].fixed
            )
            return _NONE if is_fixed else family
    return _NONE


def _plain_name(name: str) -> str:
    """Without vendor, region, date and tag."""
    name = _VENDOR.sub("", name.lower().rsplit("/", 1)[-1])
    return _VERSION.sub("", name).replace(".", "-")


def _begins(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and not name[len(prefix) : len(prefix) + 1].isalnum()


def thinking_compat_for(
    model: ModelConfig,
    level: str,
    *,
    api: str,
    show: bool = True,
    thinking: ThinkingTable = DEFAULT_THINKING,
) -> ThinkingCompat | None:
    """How *level* is put to *model* over *api*; `None` when there is nothing to send.

    Args:
        model: Whose family is looked up.
        level: One of `THINKING_LEVELS`; `none` is read as `off`.
        api: The adapter's wire, such as `openai-responses`.
        show: Also ask for readable reasoning, where that is a choice.
        thinking: The families and their models.

    Raises:
        UsageError: `unknown_thinking_level`, `unknown_thinking_family`.
    """
    asked = normalize_thinking_level(level)
    if asked is None:
        raise UsageError(
            f"Unknown thinking level {level!r}; one of {', '.join(THINKING_LEVELS)}.",
            code="unknown_thinking_level",
        )
    family = thinking.families.get(thinking_family_for_model(model, thinking=thinking))
    template = None if family is None else family.templates.get(api)
    if family is None or template is None:
        return None
    bodies = family.bodies.get(api, {})
    sent = asked
    body: Mapping[str, Any] | None
    while True:
        value, body = family.levels.get(sent), bodies.get(sent)
        clamp = _clamp(value)
        if clamp is None:
            break
        sent = clamp
        if body is not None:  # its own, which amounts to the level that it is clamped to
            break
    if body is None:
        body = {} if value is None else template
    return ThinkingCompat(
        family=family.name,
        level=asked,
        sent=sent,
        body=_filled(body, value, show=show),
        drop=table.SAMPLING_KEYS if family.refuses_sampling and sent != "off" else (),
    )


def _filled(template: Any, value: Any, *, show: bool) -> Any:
    """A copy of *template* with *value* in its place."""
    if isinstance(template, Mapping):
        fields = cast("Mapping[str, Any]", template)
        return {
            key: _filled(item, value, show=show)
            for key, item in fields.items()
            if show or key not in table.SHOW_KEYS
        }
    return value if template == table.VALUE else template


def apply_thinking_level(
    options: ProviderOptions,
    model: ModelConfig,
    level: str | None,
    *,
    api: str | None,
    thinking: ThinkingTable = DEFAULT_THINKING,
) -> tuple[ProviderOptions, Notice | None]:
    """The options that ask *model* for *level*, and what to tell the host when it was clamped.

    Pure: it only writes `options.compat["thinking"]`. Without a level or an API nothing is sent.
    A host that does not show reasoning sets `options.compat["thinking"] = {"show": False}`
    beforehand: then no summaries of it are asked for, which makes answers come sooner.

    Raises:
        UsageError: `unknown_thinking_level`, `unknown_thinking_family`.
    """
    if level is None or api is None:
        return options, None
    before: object = (options.compat or {}).get("thinking")
    show = cast("Mapping[str, object]", before).get("show") if isinstance(before, Mapping) else True
    found = thinking_compat_for(model, level, api=api, show=show is not False, thinking=thinking)
    if found is None:
        return options, None
    fragment: dict[str, Any] = {
        "family": found.family,
        "level": found.level,
        "sent": found.sent,
        "body": found.body,
    }
    if found.drop:
        fragment["drop"] = list(found.drop)
    if show is False:
        fragment["show"] = False
    compat = {**(options.compat or {}), "thinking": fragment}
    notice = None
    if found.clamped:
        notice = Notice(
            code="thinking_clamped",
            message=f"Model {model.model!r} has no thinking level {found.level!r}; "
            f"{found.sent!r} is asked for.",
        )
    return structs.replace(options, compat=compat), notice

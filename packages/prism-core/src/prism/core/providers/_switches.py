"""Compat switches as data: what is known, what the host gives, what the model says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from prism.core._errors import ProviderError, UsageError

S = TypeVar("S", bound=msgspec.Struct)

_CAMEL = re.compile(r"(?<=[a-z])([A-Z])")


def checked_switches(kind: type[S], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The switches of *kind* that *given* sets, in snake_case.

    Raises:
        UsageError: An unknown switch, or a value of the wrong type.
    """
    switches = {_snake(name): value for name, value in (given or {}).items()}
    unknown = sorted(switches.keys() - set(kind.__struct_fields__))
    if unknown:
        raise UsageError(f"Unknown compat switches: {', '.join(unknown)}.")
    try:
        msgspec.convert(switches, type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"compat: {error}.") from None
    return switches


def resolved_switches(
    kind: type[S],
    *,
    known: Mapping[str, Any],
    given: Mapping[str, Any],
    model: Mapping[str, Any] | None,
) -> S:
    """The switches for one request, each source over the one before.

    Args:
        kind: The struct that lists them with their defaults.
        known: Of the host and the model.
        given: The provider's own, already checked.
        model: `ModelConfig.compat`; its names that are no switch are for others.

    Raises:
        ProviderError: `invalid_request`, when *model* has a wrong value.
    """
    asked = {_snake(name): value for name, value in (model or {}).items()}
    switches = {
        **known,
        **given,
        **{name: value for name, value in asked.items() if name in kind.__struct_fields__},
    }
    try:
        return msgspec.convert(switches, type=kind)
    except msgspec.ValidationError as error:
        raise ProviderError(f"model.compat: {error}.", code="invalid_request") from None


def is_host(host: str, end: str) -> bool:
    """Whether *host* is *end* or below it."""
    return host == end or host.endswith(f".{end}")


def _snake(name: str) -> str:
    return _CAMEL.sub(lambda match: f"_{match.group(1).lower()}", name)

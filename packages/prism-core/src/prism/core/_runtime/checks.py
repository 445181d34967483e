"""Refusing options that cannot be, at the call that gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from prism.core._contracts import CompactionOptions, RetryOptions
from prism.core._errors import MiddlewareError, UsageError
from prism.core._retry import DefaultRetryPolicy
from prism.core._runtime.options import RunOptions
from prism.core._runtime.output import check_output
from prism.core._support.limits import non_negative_number, positive_int
from prism.core._support.redaction import SecretRedactor
from prism.core._wire import (
    THINKING_LEVELS,
    ImageBlock,
    ModelConfig,
    NativeBlock,
    OpaqueBlock,
    ProviderOptions,
    TextBlock,
    UsageLimits,
    normalize_thinking_level,
)

T = TypeVar("T")

MAX_TOOL_ROUNDS: Final = 10_000
"""Most batches of calls that a run may be given."""

MAX_THRESHOLD_ENTRIES: Final = 1_000_000
"""Highest threshold of auto-compaction."""

MAX_LIMIT: Final = 10**15
"""Highest number in `UsageLimits`: more than any run can use."""


def make_run_options(given: Mapping[str, Any]) -> RunOptions:
    """The options of a run, checked.

    Raises:
        UsageError: `invalid_params` or `invalid_limit`, naming the option and what it may be.
    """
    unknown = sorted(set(given) - set(RunOptions.__struct_fields__))
    if unknown:
        raise UsageError(
            f"A run has no option {', '.join(map(repr, unknown))}; its options are "
            f"{', '.join(RunOptions.__struct_fields__)}.",
            details={"unknown": unknown},
        )
    chosen = {name: value for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        if name in _CHECKS:
            _CHECKS[name](name, value)
    options = RunOptions(**chosen)
    if options.thinking_level is not None:
        level = thinking_level(options.thinking_level)
        options = msgspec.structs.replace(options, thinking_level=level)
    return options


def thinking_level(value: object) -> str | None:
    """*value* as one of `THINKING_LEVELS`; `None` stays, `none` is `off`.

    Raises:
        UsageError: it is no thinking level.
    """
    if value is None:
        return None
    level = normalize_thinking_level(value)
    if level is None:
        raise UsageError(
            f"thinking_level must be one of {', '.join(THINKING_LEVELS)}, not {value!r}."
        )
    return level


def tool_rounds(name: str, value: object) -> int:
    """A number of tool rounds; none is fine.

    Raises:
        UsageError: `invalid_limit`.
    """
    if type(value) is not int or not 0 <= value <= MAX_TOOL_ROUNDS:
        raise UsageError(
            f"{name} must be an integer from 0 to {MAX_TOOL_ROUNDS}, not {value!r}.",
            code="invalid_limit",
            details={"name": name, "limit": MAX_TOOL_ROUNDS},
        )
    return value


def check_compaction(name: str, value: object) -> None:
    """Refuse compaction options that cannot be; `False` is fine.

    Raises:
        UsageError: which one, and what it may be.
    """
    if value is False:
        return
    options = _must_be(CompactionOptions, "CompactionOptions or False", name, value)
    if options.threshold_entries is not None:
        positive_int("threshold_entries", options.threshold_entries, cap=MAX_THRESHOLD_ENTRIES)
    if options.on_overflow not in (None, "compact"):
        raise UsageError(f"on_overflow must be 'compact' or None, not {options.on_overflow!r}.")
    strategy: object = options.strategy
    if strategy is not None and not callable(getattr(strategy, "compact", None)):
        raise UsageError(
            f"strategy must have a method compact(); {type(strategy).__name__} has none."
        )
    SecretRedactor(options.secrets)


def check_retry(name: str, value: object) -> None:
    """Refuse retry options that cannot be; `False` is fine.

    Raises:
        UsageError: which one, and what it may be.
    """
    if value is False:
        return
    options = _must_be(RetryOptions, "RetryOptions or False", name, value)
    policy: object = options.policy
    if policy is None:
        DefaultRetryPolicy(options)
    elif not callable(getattr(policy, "decide", None)):
        raise UsageError(f"policy must have a method decide(); {type(policy).__name__} has none.")
    SecretRedactor(options.secrets)


def check_limits(name: str, value: object) -> None:
    """Refuse limits that are no positive numbers.

    Raises:
        UsageError: `invalid_limit`.
    """
    limits = _must_be(UsageLimits, "UsageLimits", name, value)
    for field in UsageLimits.__struct_fields__:
        number = getattr(limits, field)
        if number is None:
            continue
        if field == "max_cost":
            non_negative_number(field, number, cap=MAX_LIMIT)
        else:
            positive_int(field, number, cap=MAX_LIMIT)


def _must_be(kind: type[T], what: str, name: str, value: object) -> T:
    if not isinstance(value, kind):
        raise UsageError(f"{name} must be {what}, not {type(value).__name__}.")
    return value


def _is(kind: type[Any], what: str) -> Callable[[str, object], None]:
    def check(name: str, value: object) -> None:
        _must_be(kind, what, name, value)

    return check


def _check_rounds(name: str, value: object) -> None:
    tool_rounds(name, value)


def _check_level(_name: str, value: object) -> None:
    thinking_level(value)


def _check_approvals(name: str, value: object) -> None:
    if value not in ("deny", "wait"):
        raise UsageError(f"{name} must be 'deny' or 'wait', not {value!r}.")


def _check_names(name: str, value: object) -> None:
    items = _items(name, value, "names")
    if not all(isinstance(item, str) for item in items):
        raise UsageError(f"{name} must be a list of strings.")


def _check_system(name: str, value: object) -> None:
    if not isinstance(value, str):
        _check_names(name, value)


def _check_blocks(name: str, value: object) -> None:
    for item in _items(name, value, "blocks"):
        if not isinstance(item, TextBlock | ImageBlock | NativeBlock | OpaqueBlock):
            raise UsageError(
                f"{name} must hold text, image and native blocks, not {type(item).__name__}."
            )


def _items(name: str, value: object, what: str) -> Sequence[object]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise UsageError(f"{name} must be a list of {what}, not {type(value).__name__}.")
    return cast("Sequence[object]", value)


_CHECKS: Final[dict[str, Callable[[str, object], None]]] = {
    "model": _is(ModelConfig, "a ModelConfig"),
    "thinking_level": _check_level,
    "tools": _check_names,
    "system": _check_system,
    "attachments": _check_blocks,
    "context": _check_blocks,
    "max_tool_rounds": _check_rounds,
    "compaction": check_compaction,
    "retry": check_retry,
    "redactor": _is(SecretRedactor, "a SecretRedactor"),
    "limits": check_limits,
    "approvals": _check_approvals,
    "options": _is(ProviderOptions, "ProviderOptions"),
    "metadata": _is(dict, "a dict"),
    "output": check_output,
}


def is_name(value: object) -> bool:
    """Whether *value* is a string that is not empty."""
    return isinstance(value, str) and value != ""


def is_record(value: object) -> bool:
    """Whether *value* is an object with a `type`."""
    return isinstance(value, dict) and is_name(cast("dict[str, object]", value).get("type"))


# What code of the host gives back.


def made(kind: type[T], value: object, who: str) -> T:
    """*value*, when it is a *kind*, as *who* had to give.

    Raises:
        UsageError: `invalid_value`.
    """
    if not isinstance(value, kind):
        raise UsageError(
            f"{who} gave {type(value).__name__} where {kind.__name__} has to be.",
            code="invalid_value",
        )
    return value


# The class of a middleware's payload is checked by the registry, its fields here.


def given(kind: type[T], value: object, hook: str) -> T:
    """*value*, when a middleware of *hook* left a *kind* there.

    Raises:
        MiddlewareError: `middleware_failed`.
    """
    if not isinstance(value, kind):
        raise MiddlewareError(
            f"A middleware of hook {hook!r} gave {type(value).__name__} where "
            f"{kind.__name__} has to be.",
            details={"hook": hook},
        )
    return value


def given_object(value: object, hook: str) -> dict[str, Any]:
    """*value*, when a middleware of *hook* left a dictionary there.

    Raises:
        MiddlewareError: `middleware_failed`.
    """
    return cast("dict[str, Any]", given(dict, value, hook))


def given_list(kind: Any, value: object, hook: str) -> list[Any]:
    """*value* as a list, when a middleware of *hook* left a sequence of *kind* there.

    Raises:
        MiddlewareError: `middleware_failed`.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise MiddlewareError(
            f"A middleware of hook {hook!r} gave {type(value).__name__} where a list has to be.",
            details={"hook": hook},
        )
    items = list(cast("Sequence[object]", value))
    for item in items:
        if not isinstance(item, kind):
            raise MiddlewareError(
                f"A middleware of hook {hook!r} put {type(item).__name__} into a list where it "
                "cannot be.",
                details={"hook": hook},
            )
    return items

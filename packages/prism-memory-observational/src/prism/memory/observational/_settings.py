"""What can be set, where each value comes from, and what it may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

import msgspec

from prism.core import UsageError
from prism.core.host import SettingsProvider
from prism.memory.observational._shapes import is_mapping

SETTINGS_KEY: Final = "observational-memory"
"""Under which a settings provider holds them."""

DEFAULT_KEEP_RECENT_ENTRIES: Final = 8
MAX_KEEP_RECENT_ENTRIES: Final = 10_000
MAX_TOKENS: Final = 100_000_000
MAX_WORKER_MS: Final = 3_600_000
MIN_CHUNK_TOKENS: Final = 256
MIN_MESSAGE_TOKENS: Final = 4
"""What the frame of a message costs: a kept message is never less."""


class ObservationalMemorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a session's memory works. Token numbers are estimates.

    Attributes:
        observe_after_tokens: The observer is due at so many new source tokens; default 10,000.
        reflect_after_tokens: The reflector is due at so many since it last ran; default 20,000.
        compact_after_tokens: `attach()` compacts at so many new source tokens since the last
            compaction; default 81,000.
        compact_after_ratio: Instead, this part of the model's context window, between 0 and 1;
            where the window is unknown the tokens decide. Default: not used.
        observations_pool_max_tokens: A pool of this size makes a compaction a full fold; default
            20,000.
        observations_pool_target_tokens: What the dropper brings the pool down to; default 10,000.
        observer_chunk_max_tokens: How much the observer is shown at once, at least 256; default:
            a fifth of its model's window, 60,000 where that is unknown.
        prior_memory_max_tokens: How much prior memory a worker is shown; default: the same.
        max_chunks_per_flush: How often the observer runs in one flush; default 16.
        keep_recent_entries: Messages that a compaction keeps raw; default 8.
        agent_max_turns: Answers of the model in one worker run; default 16, at most 64.
        max_calls_per_turn: Tool calls in one answer; default 32, at most 256.
        max_calls_per_run: Tool calls in one worker run; default 128, at most 1,024.
        max_payload_bytes: Of one call's arguments and of one result, as JSON; default 64 KiB, at
            most 1 MiB.
        max_transcript_bytes: Of all that a worker and its model say to each other; default 1 MiB,
            at most 8 MiB.
        max_retries: Of failed requests in one worker run; default 2, at most 2.
        retry_budget_ms: How long all waits of one worker run may take together; default 15,000,
            at most that.
        worker_timeout_ms: How long one worker run may take; default 600,000, at most an hour.
        breaker_failures: Worker runs that fail in a row before flushes stop; default 3.
        breaker_cooldown_ms: How long they stop; it doubles with each further failure, up to
            sixteen times as long. Default 60,000.
        passive: Flushes do nothing and `attach()` does not compact; compaction, recall and the
            commands work. Default no.
        debug_log: Path of an NDJSON file for events, counts, ids and errors; default: none.
    """

    observe_after_tokens: int = 10_000
    reflect_after_tokens: int = 20_000
    compact_after_tokens: int = 81_000
    compact_after_ratio: float | None = None
    observations_pool_max_tokens: int = 20_000
    observations_pool_target_tokens: int = 10_000
    observer_chunk_max_tokens: int | None = None
    prior_memory_max_tokens: int | None = None
    max_chunks_per_flush: int = 16
    keep_recent_entries: int = DEFAULT_KEEP_RECENT_ENTRIES
    agent_max_turns: int = 16
    max_calls_per_turn: int = 32
    max_calls_per_run: int = 128
    max_payload_bytes: int = 64 * 1024
    max_transcript_bytes: int = 1024 * 1024
    max_retries: int = 2
    retry_budget_ms: int = 15_000
    worker_timeout_ms: int = 600_000
    breaker_failures: int = 3
    breaker_cooldown_ms: int = 60_000
    passive: bool = False
    debug_log: str | None = None


class SettingOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """A value and who set it: `default`, `settings` or `host`."""

    value: Any
    origin: str


class ResolvedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, and where they come from.

    Attributes:
        values: What holds.
        origins: `default`, `settings` or `host`, by name.
        warnings: What of the settings could not be used, in words.
    """

    values: ObservationalMemorySettings
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def describe(self) -> dict[str, SettingOrigin]:
        """Each setting's value and origin."""
        return {
            name: SettingOrigin(value=getattr(self.values, name), origin=self.origins[name])
            for name in ObservationalMemorySettings.__struct_fields__
        }


def _int(cap: int, *, least: int = 1) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if type(value) is int and least <= value <= cap:
            return None
        return f"an integer from {least} to {cap}"

    return check


def _optional(check: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
    return lambda value: None if value is None else check(value)


def _ratio(value: Any) -> str | None:
    good = type(value) is float and isfinite(value) and 0 < value < 1
    return None if good else "a number between 0 and 1"


def _bool(value: Any) -> str | None:
    return None if type(value) is bool else "true or false"


def _path(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "a path"


_CHECKS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "observe_after_tokens": _int(MAX_TOKENS),
    "reflect_after_tokens": _int(MAX_TOKENS),
    "compact_after_tokens": _int(MAX_TOKENS),
    "compact_after_ratio": _optional(_ratio),
    "observations_pool_max_tokens": _int(MAX_TOKENS),
    "observations_pool_target_tokens": _int(MAX_TOKENS),
    "observer_chunk_max_tokens": _optional(_int(MAX_TOKENS)),
    "prior_memory_max_tokens": _optional(_int(MAX_TOKENS)),
    "max_chunks_per_flush": _int(256),
    "keep_recent_entries": _int(MAX_KEEP_RECENT_ENTRIES),
    "agent_max_turns": _int(64),
    "max_calls_per_turn": _int(256),
    "max_calls_per_run": _int(1_024),
    "max_payload_bytes": _int(1024 * 1024),
    "max_transcript_bytes": _int(8 * 1024 * 1024),
    "max_retries": _int(2, least=0),
    "retry_budget_ms": _int(15_000),
    "worker_timeout_ms": _int(MAX_WORKER_MS),
    "breaker_failures": _int(100),
    "breaker_cooldown_ms": _int(MAX_WORKER_MS),
    "passive": _bool,
    "debug_log": _optional(_path),
}


def resolve_settings(
    provider: SettingsProvider | None = None, /, **overrides: Any
) -> ResolvedSettings:
    """The settings of a provider's `observational-memory`, with the host's own over them.

    Bad values of the provider are left out with a warning, so that a file with a mistake in it
    stops nobody; bad values of the host raise.

    Args:
        provider: Its names may be written `camelCase` or `snake_case`.
        **overrides: Fields of `ObservationalMemorySettings`; `None` is not given.

    Raises:
        UsageError: `invalid_setting`: an unknown name, or a bad value, of the host.
    """
    chosen: dict[str, Any] = {}
    origins = dict.fromkeys(ObservationalMemorySettings.__struct_fields__, "default")
    warnings: list[str] = []
    for name, value in _from_provider(provider, warnings).items():
        wanted = _CHECKS[name](value)
        if wanted is not None:
            warnings.append(
                f"{SETTINGS_KEY}.{name} must be {wanted}, not {_shown(value)}; it is ignored."
            )
            continue
        chosen[name] = value
        origins[name] = "settings"
    for name, value in overrides.items():
        if name not in _CHECKS:
            raise _bad(f"{name} is no setting of observational memory.")
        if value is None:
            continue
        wanted = _CHECKS[name](value)
        if wanted is not None:
            raise _bad(f"{name} must be {wanted}, not {_shown(value)}.")
        chosen[name] = value
        origins[name] = "host"
    _cross_check(chosen, origins, warnings)
    return ResolvedSettings(
        values=ObservationalMemorySettings(**chosen), origins=origins, warnings=tuple(warnings)
    )


def checked_settings(settings: ObservationalMemorySettings) -> ObservationalMemorySettings:
    """*settings*, when every value is one that it may be.

    Raises:
        UsageError: `invalid_setting`.
    """
    fields = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return resolve_settings(**fields).values


def _from_provider(provider: SettingsProvider | None, warnings: list[str]) -> dict[str, Any]:
    found: Any = None if provider is None else provider.get(SETTINGS_KEY)
    if found is None:
        return {}
    if not is_mapping(found):
        warnings.append(f"{SETTINGS_KEY} must be an object; it is ignored.")
        return {}
    values: dict[str, Any] = {}
    for key, value in found.items():
        name = _snake(str(key))
        if name == "debug_log" and value is False:
            continue
        if name in _CHECKS:
            values[name] = value
        else:
            warnings.append(f"{SETTINGS_KEY}.{str(key)[:40]} is no setting; it is ignored.")
    return values


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _cross_check(chosen: dict[str, Any], origins: dict[str, str], warnings: list[str]) -> None:
    """What must hold between settings."""
    defaults = ObservationalMemorySettings()

    def value(name: str) -> Any:
        return chosen.get(name, getattr(defaults, name))

    most = value("observations_pool_max_tokens")
    target = value("observations_pool_target_tokens")
    if target >= most:
        message = (
            f"observations_pool_target_tokens ({target}) must be less than "
            f"observations_pool_max_tokens ({most})"
        )
        if origins["observations_pool_target_tokens"] == "host":
            raise _bad(f"{message}.")
        if origins["observations_pool_target_tokens"] == "settings":
            warnings.append(f"{message}; half of that is used.")
        if most < 2:
            raise _bad(f"{message}, and there is none below 1.")
        chosen["observations_pool_target_tokens"] = most // 2
        origins["observations_pool_target_tokens"] = "default"
    window = value("keep_recent_entries") * MIN_MESSAGE_TOKENS
    compact = value("compact_after_tokens")
    if compact <= window:
        message = (
            f"compact_after_tokens ({compact}) must be more than the messages that are kept take "
            f"at least: {MIN_MESSAGE_TOKENS} for each of keep_recent_entries "
            f"({value('keep_recent_entries')})"
        )
        if "host" in {origins["compact_after_tokens"], origins["keep_recent_entries"]}:
            raise _bad(f"{message}.")
        warnings.append(f"{message}; the defaults are used.")
        for name in ("compact_after_tokens", "keep_recent_entries"):
            chosen.pop(name, None)
            origins[name] = "default"


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() <= 128 else "a huge integer"
    return f"a value of type {type(value).__name__}"


def _bad(message: str) -> UsageError:
    return UsageError(message, code="invalid_setting")

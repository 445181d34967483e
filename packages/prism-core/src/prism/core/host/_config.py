"""Configuration as data: layers, and files that a host names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from importlib import import_module
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from prism.core._contracts import CredentialRequest, TrustPolicy
from prism.core._errors import ConfigError, DecodeError, UsageError
from prism.core._support.limits import positive_int
from prism.core._support.schema import json_path
from prism.core._wire import MAX_DEPTH, parse_json
from prism.core.host._files import MAX_FILE_BYTES, FileRefused, read_file
from prism.core.host._trust import assert_trusted

DEFAULT_MAX_CONFIG_BYTES: Final = 1024 * 1024
"""Largest configuration that is read when the caller sets no limit."""

ConfigFormat: TypeAlias = Literal["json", "toml"]

_SECRET_WORDS: Final = frozenset({
    "apikey", "authorization", "password", "passphrase", "passwd", "secret", "token",
})  # fmt: skip
_SECRET_KEYS: Final = frozenset(
    {"access", "api", "auth", "encryption", "private", "secret", "signing"}
)
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

Steps: TypeAlias = tuple[str | int, ...]


def merge_config_layers(*layers: Mapping[str, Any] | None) -> dict[str, Any]:
    """One configuration of several, the weakest first: defaults, user, project, explicit.

    Objects are merged key by key; a list or a scalar, also `None`, replaces what was there. The
    result shares nothing with the layers.

    Raises:
        ConfigError: `too_deep`.
    """
    merged: dict[str, Any] = {}
    try:
        for layer in layers:
            if layer is not None:
                _merge(merged, layer, 1)
    except RecursionError:
        raise _too_deep() from None
    return merged


def _merge(target: dict[str, Any], layer: Mapping[str, Any], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _too_deep()
    for key, value in layer.items():
        if isinstance(value, Mapping):
            old = target.get(key)
            new: dict[str, Any] = cast("dict[str, Any]", old) if isinstance(old, dict) else {}
            target[key] = new
            _merge(new, cast("Mapping[str, Any]", value), depth + 1)
        else:
            target[key] = _copied(value, depth)


def _copied(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _too_deep()
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {key: _copied(item, depth + 1) for key, item in items}
    if isinstance(value, list | tuple):
        return [_copied(item, depth + 1) for item in cast("list[object]", value)]
    return value


def read_config_file(
    path: str | PathLike[str],
    *,
    root: str | PathLike[str] | None = None,
    max_bytes: int = DEFAULT_MAX_CONFIG_BYTES,
    format: ConfigFormat | None = None,  # noqa: A002
    trust: TrustPolicy | None = None,
) -> dict[str, Any]:
    """Read one file; nothing in it is expanded, imported or run.

    Args:
        path: A file that the host names; Prism looks for none.
        root: A folder that the file must lie in after symbolic links were followed; relative
            paths begin there.
        max_bytes: Largest file (1 to 64 MiB; default 1 MiB).
        format: Default: by the name's ending, `.json` or `.toml`.
        trust: When given, it must trust the path.

    Returns:
        The object in the file. Dates of TOML become ISO-8601 text.

    Raises:
        ConfigError: `config_not_found`, `config_denied`, `config_too_large`, `config_unreadable`,
            `unknown_format`; `parse_error` with line and column; `secret_in_config` with the path
            of each secret that is written out instead of referred to; `invalid_config`.
        PermissionDenied: `not_trusted`.
    """
    positive_int("max_bytes", max_bytes, cap=MAX_FILE_BYTES)
    where = Path(path) if root is None else Path(root) / path
    kind = format_of(where.name) if format is None else format
    if kind not in {"json", "toml"}:
        raise ConfigError(
            f"{str(where)!r} is neither JSON nor TOML by its name; give `format`.",
            code="unknown_format",
        )
    if trust is not None:
        assert_trusted(trust, where)
    try:
        data = read_file(where, roots=None if root is None else [Path(root)], max_bytes=max_bytes)
    except FileRefused as refused:
        raise ConfigError(
            f"Configuration: {refused.message}", code=f"config_{refused.reason}"
        ) from None
    return parse_config(data, format=kind, source=str(where))


def format_of(name: str) -> ConfigFormat | None:
    """The format that a file's name tells."""
    ending = name.rpartition(".")[2].lower()
    return "json" if ending == "json" else "toml" if ending == "toml" else None


def parse_config(
    data: bytes,
    *,
    format: ConfigFormat,  # noqa: A002
    source: str = "configuration",
    secrets: Literal["refuse", "allow"] = "refuse",
) -> dict[str, Any]:
    """Read a configuration's bytes: strict UTF-8, a byte-order mark is skipped.

    Args:
        data: The bytes.
        format: `json` or `toml`.
        source: Stands in the message of an error.
        secrets: `allow`: secrets that are written out are left to the caller.

    Raises:
        ConfigError: As for `read_config_file`.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{source}: not valid UTF-8 at byte {error.start}.", code="parse_error"
        ) from None
    tree = _parse_json(text, source) if format == "json" else _parse_toml(text, source)
    if not isinstance(tree, dict):
        raise ConfigError(f"{source}: must hold an object at its top.")
    fields = cast("dict[str, Any]", tree)
    literal = find_literal_secrets(fields) if secrets == "refuse" else []
    if literal:
        raise ConfigError(
            f"{source}: secrets must not be written out, and are at {', '.join(literal)}; refer to "
            'them as {"credential": {"provider": …, "name": …}}.',
            code="secret_in_config",
            details={"paths": literal},
        )
    return fields


def _parse_json(text: str, source: str) -> Any:
    try:
        return parse_json(text)
    except DecodeError as error:
        raise ConfigError(f"{source}: {error.message}", code=error.code) from None


def _parse_toml(text: str, source: str) -> Any:
    import tomllib

    try:
        return _as_json(tomllib.loads(text), (), source)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not valid TOML: {error}.", code="parse_error") from None
    except RecursionError:
        raise _too_deep() from None


def _as_json(value: Any, steps: Steps, source: str) -> Any:
    if len(steps) > MAX_DEPTH:
        raise _too_deep()
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _as_json(item, (*steps, key), source) for key, item in fields.items()}
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [_as_json(item, (*steps, at), source) for at, item in enumerate(items)]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and not isfinite(value):
        raise ConfigError(f"{source}: {json_path(steps)}: {value} is not a number of JSON.")
    return value


def load_config_files(
    paths: Iterable[str | PathLike[str]],
    *,
    root: str | PathLike[str] | None = None,
    max_bytes: int = DEFAULT_MAX_CONFIG_BYTES,
    missing: Literal["error", "skip"] = "error",
    trust: TrustPolicy | None = None,
) -> dict[str, Any]:
    """Read several files and merge them, the weakest first.

    Args:
        paths: Files that the host names.
        root: As for `read_config_file`.
        max_bytes: As for `read_config_file`, for each file.
        trust: As for `read_config_file`.
        missing: `skip`: a file that does not exist counts as empty.

    Raises:
        ConfigError: As for `read_config_file`.
        PermissionDenied: `not_trusted`.
    """
    layers: list[dict[str, Any]] = []
    for path in paths:
        try:
            layers.append(read_config_file(path, root=root, max_bytes=max_bytes, trust=trust))
        except ConfigError as error:
            if missing != "skip" or error.code != "config_not_found":
                raise
    return merge_config_layers(*layers)


def default_user_config_path(app: str = "prism", filename: str = "config.toml") -> Path:
    """Where this system keeps a user's configuration; nothing is read or made.

    Raises:
        UsageError: `missing_extra`, naming `prism-core[config]`.
    """
    try:
        platformdirs = import_module("platformdirs")
    except ModuleNotFoundError:
        raise UsageError(
            "Finding the user's configuration folder needs the `platformdirs` library: install "
            "`prism-core[config]`.",
            code="missing_extra",
            details={"extra": "config"},
        ) from None
    folder: Path = platformdirs.user_config_path(app, appauthor=False)
    return folder / filename


def credential_reference(value: object) -> CredentialRequest | None:
    """What `{"credential": {"provider": …, "name": …, "scope": …}}` refers to.

    Returns:
        The request for a resolver (`name` defaults to `apiKey`), or `None` when *value* is not
        exactly of that shape.
    """
    if not isinstance(value, dict) or set(cast("dict[str, Any]", value)) != {"credential"}:
        return None
    target: object = cast("dict[str, Any]", value)["credential"]
    if not isinstance(target, dict):
        return None
    fields = cast("dict[str, Any]", target)
    if not set(fields) <= {"provider", "name", "scope"} or not fields.get("provider"):
        return None
    if not all(isinstance(part, str) for part in fields.values()):
        return None
    return CredentialRequest(
        provider=fields["provider"],
        name=fields.get("name", "apiKey"),
        scope=fields.get("scope"),
    )


def find_literal_secrets(value: object) -> list[str]:
    """JSON paths of texts under keys such as `apiKey`, `password` or `access_token`."""
    found: list[str] = []
    _find_secrets(value, (), found)
    return found


def _find_secrets(value: object, steps: Steps, found: list[str]) -> None:
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            if isinstance(item, str) and item and _names_a_secret(key):
                found.append(json_path((*steps, key)))
            else:
                _find_secrets(item, (*steps, key), found)
    elif isinstance(value, list):
        for at, item in enumerate(cast("list[object]", value)):
            _find_secrets(item, (*steps, at), found)


def _names_a_secret(key: str) -> bool:
    """By its last words: `apiKeyEnv` and `maxTokens` are none."""
    words = [word.lower() for word in _WORDS.findall(key)]
    if not words:
        return False
    return words[-1] in _SECRET_WORDS or (
        len(words) > 1 and words[-1] == "key" and words[-2] in _SECRET_KEYS
    )


def _too_deep() -> ConfigError:
    return ConfigError(
        f"A configuration nests deeper than {MAX_DEPTH} levels.",
        code="too_deep",
        details={"limit": MAX_DEPTH},
    )

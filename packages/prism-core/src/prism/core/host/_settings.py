"""Settings by key: given, read from a file, or asked for one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from os import PathLike
from typing import Any, cast

from prism.core._contracts import SettingsProvider, TrustPolicy
from prism.core._errors import ConfigError
from prism.core.host._config import DEFAULT_MAX_CONFIG_BYTES, ConfigFormat, read_config_file


class StaticSettings:
    """Settings that the host holds already.

    Args:
        values: JSON values by key; copied, so that later changes have no effect.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values: dict[str, Any] = deepcopy(dict(values))

    def get(self, key: str) -> Any:
        """A copy of the value, or `None`."""
        return deepcopy(self._values.get(key))


class ChainedSettings:
    """Asks providers one after the other; the first that has the key wins.

    Args:
        providers: The strongest first.
    """

    __slots__ = ("_providers",)

    def __init__(self, providers: Sequence[SettingsProvider]) -> None:
        self._providers = tuple(providers)

    def get(self, key: str) -> Any:
        """The first value that is not `None`, or `None`."""
        for provider in self._providers:
            value = provider.get(key)
            if value is not None:
                return value
        return None


class FileSettings(StaticSettings):
    """Settings in a JSON or TOML file, read once, when this is made.

    Args:
        path: As for `read_config_file`, like *root*, *max_bytes*, *format* and *trust*.
        table: The object in the file that holds the settings, such as `settings`; default: the
            whole file. A file without it has no settings.

    Raises:
        ConfigError: As for `read_config_file`; `invalid_config` when *table* is not an object.
        PermissionDenied: `not_trusted`.
    """

    __slots__ = ()

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        table: str | None = None,
        root: str | PathLike[str] | None = None,
        max_bytes: int = DEFAULT_MAX_CONFIG_BYTES,
        format: ConfigFormat | None = None,  # noqa: A002
        trust: TrustPolicy | None = None,
    ) -> None:
        values = read_config_file(path, root=root, max_bytes=max_bytes, format=format, trust=trust)
        if table is not None:
            part = values.get(table, {})
            if not isinstance(part, dict):
                raise ConfigError(f"{str(path)!r}: {table!r} must be an object.")
            values = cast("dict[str, Any]", part)
        super().__init__(values)

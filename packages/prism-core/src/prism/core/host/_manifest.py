"""What a package says that it contributes; read as data, never imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec import field

from prism.core._errors import ConfigError
from prism.core._support.schema import json_path
from prism.core._wire import WireStruct
from prism.core.host._config import Steps, find_literal_secrets

MANIFEST_API: Final = 1
"""The manifest format that this version reads."""

CONTRIBUTION_KINDS: Final = (
    "agent",
    "authMethod",
    "command",
    "compactionStrategy",
    "contextProvider",
    "credentialResolver",
    "inputBuilder",
    "middleware",
    "model",
    "promptBuilder",
    "provider",
    "providerPackage",
    "requestPolicy",
    "resourceLoader",
    "retryPolicy",
    "settingsProvider",
    "skill",
    "storeFactory",
    "systemPrompt",
    "tool",
)
"""What a contribution can be."""

MAX_PROBLEMS: Final = 100
"""How many problems one error names."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")
_VERSION: Final = re.compile(r"[0-9][0-9A-Za-z.+!-]{0,63}")
_NAME_RULE: Final = (
    "must begin with a letter or digit and have at most 128 letters, digits and . _ : / @ -"
)


class Contribution(WireStruct, frozen=True, kw_only=True):
    """One thing that a package offers.

    Attributes:
        kind: One of `CONTRIBUTION_KINDS`.
        name: Under which it is registered; unique among its kind.
        entry_point: Where it is, as `package.module:attribute`.
    """

    kind: str
    name: str
    entry_point: str
    description: str | None = None


class Manifest(WireStruct, frozen=True, kw_only=True):
    """What a package contributes; a declaration, which loads nothing.

    Attributes:
        prism_api: The manifest format, `MANIFEST_API`.
        requires: Names of extensions that must be loaded before.
        settings: Defaults of its settings.
    """

    name: str
    version: str
    prism_api: int = MANIFEST_API
    description: str | None = None
    requires: list[str] = field(default_factory=list[str])
    contributions: list[Contribution] = field(default_factory=list[Contribution])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


def parse_manifest(value: object, *, source: str = "manifest") -> Manifest:
    """Read a manifest that was decoded from JSON or TOML; nothing that it names is imported.

    Args:
        value: `name` and `version`, and optionally `prismApi`, `description`, `requires`,
            `contributions` (objects with `kind`, `name`, `entryPoint` and optionally
            `description`) and `settings`.
        source: Stands in the message.

    Raises:
        ConfigError: `invalid_manifest` with every problem and its JSON path (at most
            `MAX_PROBLEMS`), also as `details["problems"]`.
    """
    reader = _Reader()
    manifest = reader.manifest(value)
    if manifest is None:
        shown = reader.problems[:MAX_PROBLEMS]
        more = len(reader.problems) - len(shown)
        lines = "; ".join(f"{path}: {problem}" for path, problem in shown)
        raise ConfigError(
            f"{source}: {lines}{f'; and {more} more' if more else ''}.",
            code="invalid_manifest",
            details={"problems": [{"path": path, "message": problem} for path, problem in shown]},
        )
    return manifest


class _Reader:
    """Collects problems instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str]] = []

    def manifest(self, value: object) -> Manifest | None:
        fields = self._object(value, ())
        if fields is None:
            return None
        self._only(
            fields,
            {"name", "version", "prismApi", "description", "requires", "contributions", "settings"},
            (),
        )
        api = fields.get("prismApi", MANIFEST_API)
        if type(api) is not int or api != MANIFEST_API:
            self._problem(("prismApi",), f"must be {MANIFEST_API}, the format of this version")
        manifest = Manifest(
            name=self._text(fields, "name", (), _NAME, _NAME_RULE),
            version=self._text(fields, "version", (), _VERSION, "must be a version such as 1.2.0"),
            description=self._description(fields, ()),
            requires=self._requires(fields.get("requires", [])),
            contributions=self._contributions(fields.get("contributions", [])),
            settings=self._object(fields.get("settings", {}), ("settings",)) or {},
        )
        for path in find_literal_secrets(value):
            self.problems.append((path, "must not hold a secret, only a reference to one"))
        return None if self.problems else manifest

    def _requires(self, value: object) -> list[str]:
        names: list[str] = []
        for at, item in enumerate(self._list(value, ("requires",))):
            if not isinstance(item, str) or not _NAME.fullmatch(item):
                self._problem(("requires", at), _NAME_RULE)
            elif item in names:
                self._problem(("requires", at), f"names {item!r} again")
            else:
                names.append(item)
        return names

    def _contributions(self, value: object) -> list[Contribution]:
        found: dict[tuple[str, str], int] = {}
        contributions: list[Contribution] = []
        for at, item in enumerate(self._list(value, ("contributions",))):
            steps = ("contributions", at)
            fields = self._object(item, steps)
            if fields is None:
                continue
            contribution = self._contribution(fields, steps)
            key = (contribution.kind, contribution.name)
            if all(key) and key in found:
                self._problem(
                    (*steps, "name"),
                    f"{contribution.name!r} is taken by {json_path(('contributions', found[key]))}",
                )
            found.setdefault(key, at)
            contributions.append(contribution)
        return contributions

    def _contribution(self, fields: Mapping[str, Any], steps: Steps) -> Contribution:
        self._only(fields, {"kind", "name", "entryPoint", "description"}, steps)
        kind = fields.get("kind")
        if kind not in CONTRIBUTION_KINDS:
            self._problem((*steps, "kind"), f"must be one of {', '.join(CONTRIBUTION_KINDS)}")
            kind = ""
        entry_point = fields.get("entryPoint")
        if not isinstance(entry_point, str) or not _is_entry_point(entry_point):
            self._problem((*steps, "entryPoint"), "must be of the form package.module:attribute")
            entry_point = ""
        return Contribution(
            kind=kind,
            name=self._text(fields, "name", steps, _NAME, _NAME_RULE),
            entry_point=entry_point,
            description=self._description(fields, steps),
        )

    def _description(self, fields: Mapping[str, Any], steps: Steps) -> str | None:
        value = fields.get("description")
        if value is not None and not isinstance(value, str):
            self._problem((*steps, "description"), "must be text")
            return None
        return value

    def _text(
        self,
        fields: Mapping[str, Any],
        key: str,
        steps: Steps,
        pattern: re.Pattern[str],
        rule: str,
    ) -> str:
        value = fields.get(key)
        if value is None:
            self._problem((*steps, key), "is missing")
        elif not isinstance(value, str) or not pattern.fullmatch(value):
            self._problem((*steps, key), rule)
        else:
            return value
        return ""

    def _object(self, value: object, steps: Steps) -> dict[str, Any] | None:
        if isinstance(value, dict) and all(
            isinstance(key, str) for key in cast("dict[object, object]", value)
        ):
            return cast("dict[str, Any]", value)
        self._problem(steps, "must be an object")
        return None

    def _list(self, value: object, steps: Steps) -> list[object]:
        if isinstance(value, list):
            return cast("list[object]", value)
        self._problem(steps, "must be a list")
        return []

    def _only(self, fields: Mapping[str, Any], known: set[str], steps: Steps) -> None:
        for key in fields:
            if key not in known:
                self._problem((*steps, key), f"is unknown; known are {', '.join(sorted(known))}")

    def _problem(self, steps: Steps, text: str) -> None:
        self.problems.append((json_path(steps), text))


def _is_entry_point(text: str) -> bool:
    module, colon, attribute = text.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(part.isidentifier() for part in parts)

"""Loading what a URI names, bounded and only from where the host allows."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from anyio import to_thread

from prism.core._contracts import Resource, ResourceLoader
from prism.core._errors import DecodeError, ResourceError, UsageError
from prism.core._support.limits import positive_int
from prism.core._wire import parse_json
from prism.core.host._config import format_of, parse_config
from prism.core.host._files import MAX_FILE_BYTES, FileRefused, read_file
from prism.core.host._manifest import Manifest, parse_manifest

DEFAULT_MAX_RESOURCE_BYTES: Final = 1024 * 1024
"""Largest resource that is loaded when the caller sets no limit."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_SHOWN_CHARS: Final = 100
_TEXT_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
_MEDIA_TYPES: Final = {
    ".csv": "text/csv",
    ".gif": "image/gif",
    ".html": "text/html",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".json": "application/json",
    ".md": "text/markdown",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".txt": "text/plain",
    ".webp": "image/webp",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


class FileResourceLoader:
    """Loads regular files from some folders.

    `file:///path/to/file` names a file; `file:path/to/file` is looked for in the first folder.

    Args:
        roots: Folders that a file must lie in after symbolic links were followed.
    """

    __slots__ = ("_roots",)

    def __init__(self, roots: Sequence[str | PathLike[str]]) -> None:
        if not roots or isinstance(roots, str):
            raise UsageError("roots must be a list of at least one folder.")
        self._roots = tuple(Path(root) for root in roots)

    @property
    def schemes(self) -> frozenset[str]:
        """`file`."""
        return frozenset({"file"})

    async def load(self, uri: str, *, max_bytes: int) -> Resource:
        """The file's bytes; it is read in a worker thread.

        Raises:
            ResourceError: `resource_not_found`, `resource_denied`, `resource_too_large`,
                `resource_unreadable`, or `invalid_uri`.
        """
        path = self._path(uri)
        try:
            data = await to_thread.run_sync(
                partial(read_file, path, roots=self._roots, max_bytes=max_bytes),
                abandon_on_cancel=True,
            )
        except FileRefused as refused:
            raise ResourceError(refused.message, code=f"resource_{refused.reason}") from None
        return Resource(uri=uri, data=data, media_type=_MEDIA_TYPES.get(path.suffix.lower()))

    def _path(self, uri: str) -> Path:
        try:
            parts = urlsplit(uri)
        except ValueError as error:
            raise _invalid(uri, f"{error}") from None
        if parts.scheme != "file" or not parts.path or parts.query or parts.fragment:
            raise _invalid(uri, "a file is named as file:///path, without a query or fragment")
        if parts.netloc not in {"", "localhost"}:
            raise _invalid(uri, "files of other hosts are not loaded")
        if "\0" in unquote(parts.path):
            raise _invalid(uri, "a path has no NUL")
        from urllib.request import url2pathname

        path = Path(url2pathname(parts.path))
        return path if path.is_absolute() else self._roots[0] / path


class DataResourceLoader:
    """Loads `data:` URIs, which hold the resource themselves."""

    __slots__ = ()

    @property
    def schemes(self) -> frozenset[str]:
        """`data`."""
        return frozenset({"data"})

    async def load(self, uri: str, *, max_bytes: int) -> Resource:
        """The URI's bytes.

        Raises:
            ResourceError: `invalid_uri`, `resource_too_large`, or `resource_decode` when the
                base64 is wrong.
        """
        head, comma, body = uri.partition(",")
        if not comma or head[:5].lower() != "data:":
            raise _invalid(uri, "data is given as data:[type][;base64],text")
        media_type = head[5:]
        # A percent escape takes three characters a byte, base64 four for three.
        if len(body) > 3 * max_bytes + 4:
            raise _too_large(uri, max_bytes)
        data = unquote_to_bytes(body)
        if media_type.lower().endswith(";base64"):
            media_type = media_type[: -len(";base64")]
            try:
                data = base64.b64decode(b"".join(data.split()), validate=True)
            except binascii.Error as error:
                raise ResourceError(
                    f"{_shown(uri)}: not valid base64: {error}.", code="resource_decode"
                ) from None
        if len(data) > max_bytes:
            raise _too_large(uri, max_bytes)
        return Resource(uri=uri, data=data, media_type=media_type or "text/plain;charset=US-ASCII")


class ResourceLoaders:
    """Several loaders as one, chosen by the URI's scheme.

    Args:
        loaders: No two of them may serve the same scheme.

    Raises:
        UsageError: `duplicate_name`, naming both loaders.
    """

    __slots__ = ("_by_scheme",)

    def __init__(self, loaders: Sequence[ResourceLoader]) -> None:
        self._by_scheme: dict[str, ResourceLoader] = {}
        for loader in loaders:
            for scheme in sorted(loader.schemes):
                other = self._by_scheme.setdefault(scheme.lower(), loader)
                if other is not loader:
                    raise UsageError(
                        f"{type(other).__name__} and {type(loader).__name__} both serve "
                        f"{scheme!r}.",
                        code="duplicate_name",
                    )

    @property
    def schemes(self) -> frozenset[str]:
        """The schemes of all loaders."""
        return frozenset(self._by_scheme)

    async def load(self, uri: str, *, max_bytes: int) -> Resource:
        """The resource, from the loader of its scheme.

        Raises:
            ResourceError: `resource_unsupported_scheme`, listing the known ones, `invalid_uri`,
                or the loader's own.
        """
        found = _SCHEME.match(uri)
        if found is None:
            raise _invalid(uri, "it has no scheme")
        loader = self._by_scheme.get(found[1].lower())
        if loader is None:
            known = ", ".join(sorted(self._by_scheme)) or "none"
            raise ResourceError(
                f"No loader serves {found[1]!r}; known schemes: {known}.",
                code="resource_unsupported_scheme",
                details={"schemes": sorted(self._by_scheme)},
            )
        return await loader.load(uri, max_bytes=max_bytes)


async def load_resource(
    loader: ResourceLoader, uri: str, *, max_bytes: int = DEFAULT_MAX_RESOURCE_BYTES
) -> Resource:
    """Load *uri*, and hold the loader to the limit.

    Args:
        loader: Which loader; `ResourceLoaders` chooses among several.
        uri: What to load.
        max_bytes: Most bytes that it may have (1 to 64 MiB; default 1 MiB).

    Raises:
        ResourceError: The loader's, or `resource_too_large`.
    """
    positive_int("max_bytes", max_bytes, cap=MAX_FILE_BYTES)
    resource = await loader.load(uri, max_bytes=max_bytes)
    if len(resource.data) > max_bytes:
        raise _too_large(uri, max_bytes)
    return resource


async def load_text_resource(
    loader: ResourceLoader, uri: str, *, max_bytes: int = DEFAULT_MAX_RESOURCE_BYTES
) -> str:
    """The resource as text: strict UTF-8, a byte-order mark is skipped.

    Raises:
        ResourceError: As for `load_resource`; `resource_decode` when it is not UTF-8.
    """
    return _text(await load_resource(loader, uri, max_bytes=max_bytes))


async def load_json_resource(
    loader: ResourceLoader, uri: str, *, max_bytes: int = DEFAULT_MAX_RESOURCE_BYTES
) -> Any:
    """The resource as dictionaries, lists and scalars.

    Raises:
        ResourceError: As for `load_text_resource`; `resource_decode` when it is not JSON.
    """
    text = await load_text_resource(loader, uri, max_bytes=max_bytes)
    try:
        return parse_json(text)
    except DecodeError as error:
        raise ResourceError(f"{_shown(uri)}: {error.message}", code="resource_decode") from None


async def load_manifest_resource(
    loader: ResourceLoader, uri: str, *, max_bytes: int = DEFAULT_MAX_RESOURCE_BYTES
) -> Manifest:
    """The resource as a manifest, in JSON or TOML by its media type or its name.

    Raises:
        ResourceError: As for `load_resource`.
        ConfigError: `parse_error`, `invalid_manifest`.
    """
    resource = await load_resource(loader, uri, max_bytes=max_bytes)
    media_type = (resource.media_type or "").partition(";")[0].strip().lower()
    is_toml = media_type.endswith("toml") or (
        not media_type.endswith("json") and format_of(uri) == "toml"
    )
    tree = parse_config(
        resource.data, format="toml" if is_toml else "json", source=_shown(uri), secrets="allow"
    )
    return parse_manifest(tree, source=_shown(uri))


def _text(resource: Resource) -> str:
    for parameter in (resource.media_type or "").split(";")[1:]:
        key, _, charset = parameter.partition("=")
        if key.strip().lower() == "charset" and charset.strip(' "').lower() not in _TEXT_CHARSETS:
            raise ResourceError(
                f"{_shown(resource.uri)}: text must be UTF-8, not {charset.strip()}.",
                code="resource_decode",
            )
    try:
        return resource.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ResourceError(
            f"{_shown(resource.uri)}: not valid UTF-8 at byte {error.start}.",
            code="resource_decode",
        ) from None


def _shown(uri: str) -> str:
    """The URI as a message may show it; one of the scheme `data` can be long."""
    return repr(uri if len(uri) <= _SHOWN_CHARS else f"{uri[:_SHOWN_CHARS]}…")


def _invalid(uri: str, why: str) -> ResourceError:
    return ResourceError(f"{_shown(uri)} cannot be loaded: {why}.", code="invalid_uri")


def _too_large(uri: str, max_bytes: int) -> ResourceError:
    return ResourceError(
        f"{_shown(uri)} has more than {max_bytes} bytes.",
        code="resource_too_large",
        details={"limit": max_bytes},
    )

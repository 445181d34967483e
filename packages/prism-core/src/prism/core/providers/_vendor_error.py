"""Reads the error bodies of vendors and gateways into one shape; nothing here fails."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from prism.core._errors import DecodeError
from prism.core._wire import parse_json
from prism.core.providers._json import as_text, is_list, is_object

_MAX_NESTING: Final = 4
_MAX_TEXT: Final = 8_192
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)


class VendorError(msgspec.Struct, frozen=True, kw_only=True):
    """What could be found.

    Attributes:
        message: The vendor's words, those of an upstream behind a gateway included.
        codes: Codes, types and reasons, the most exact first.
        kind: The vendor's error type.
        status: An HTTP status that stood in the body.
        details: Google's list of details.
        used: Tokens of the request.
        limit: Tokens of the context window.
    """

    message: str = ""
    codes: tuple[str, ...] = ()
    kind: str | None = None
    status: int | None = None
    details: tuple[Any, ...] = ()
    request_id: str | None = None
    used: int | None = None
    limit: int | None = None


def parse_error_body(body: bytes) -> VendorError:
    """The error in an HTTP body: JSON of any known form, else HTML or text."""
    try:
        tree = parse_json(body)
    except DecodeError:
        return VendorError(message=_plain_text(body.decode("utf-8", "replace")))
    return parse_error_tree(tree) or VendorError()


def parse_error_tree(tree: Any, *, depth: int = 0) -> VendorError | None:
    """The error in decoded JSON, or `None` when there is none."""
    if depth > _MAX_NESTING:
        return None
    if isinstance(tree, str):
        return _from_text(tree, depth)
    if is_list(tree):  # Google's errors outside a stream
        return next(
            (error for item in tree if (error := parse_error_tree(item, depth=depth + 1))), None
        )
    if not is_object(tree):
        return None
    for name in ("error", "errors", "detail"):
        inner = tree.get(name)
        if not inner:
            continue
        if name == "detail" and is_list(inner):  # FastAPI's validation errors
            inner = "; ".join(_validation_text(item) for item in inner)
        found = parse_error_tree(inner, depth=depth + 1)
        if found is not None:
            outer = _codes(tree) if isinstance(inner, str) else ()
            return msgspec.structs.replace(
                found,
                codes=(*found.codes, *outer),
                status=found.status or _status(tree),
                request_id=found.request_id or as_text(tree.get("request_id")),
            )
    return _from_object(tree, depth)


def _from_text(text: str, depth: int) -> VendorError | None:
    if text.lstrip().startswith(("{", "[")):
        try:
            tree = parse_json(text)
        except DecodeError:
            tree = None
        found = parse_error_tree(tree, depth=depth + 1)
        if found is not None:
            return found
    return VendorError(message=text[:_MAX_TEXT]) if text.strip() else None


def _from_object(tree: dict[str, Any], depth: int) -> VendorError | None:
    message = tree.get("message") or tree.get("msg")
    nested = None
    if isinstance(message, dict | list):
        nested = parse_error_tree(message, depth=depth + 1)
        message = None
    metadata = tree.get("metadata")
    if is_object(metadata) and metadata.get("raw"):  # OpenRouter's upstream
        nested = parse_error_tree(metadata["raw"], depth=depth + 1)
    codes = _codes(tree)
    if message is None and nested is None and not codes:
        return None
    parts = [as_text(message), nested.message if nested else None]
    found = VendorError() if nested is None else nested
    details = tree.get("details")
    return VendorError(
        message=": ".join(part for part in parts if part)[:_MAX_TEXT],
        codes=(*codes, *found.codes),
        kind=as_text(tree.get("type")) or as_text(tree.get("status")) or found.kind,
        status=_status(tree) or found.status,
        details=tuple(details) if is_list(details) else found.details,
        request_id=as_text(tree.get("request_id")) or found.request_id,
        used=_count(tree.get("n_prompt_tokens")) or found.used,
        limit=_count(tree.get("n_ctx")) or found.limit,
    )


def _codes(tree: dict[str, Any]) -> tuple[str, ...]:
    details = tree.get("details")
    inner = tree.get("innererror")
    metadata = tree.get("metadata")
    found: list[Any] = []
    if is_object(details):  # Anthropic
        found.append(details.get("error_code"))
    if is_object(inner):  # Azure
        found.append(inner.get("code"))
    if is_list(details):  # Google
        found += [detail.get("reason") for detail in details if is_object(detail)]
    if is_object(metadata) and metadata.get("flagged_input") is not None:  # OpenRouter
        found.append("moderation_blocked")
    found += [tree.get("code"), tree.get("type"), tree.get("status")]
    texts = (code for code in found if isinstance(code, str) and code and not code.isdecimal())
    return tuple(dict.fromkeys(texts))


def _status(tree: dict[str, Any]) -> int | None:
    for name in ("status_code", "code", "status"):
        value = tree.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:
            value = int(value)
        if type(value) is int and 400 <= value < 600:
            return value
    return None


def _validation_text(item: Any) -> str:
    if not is_object(item):
        return str(item)
    place = item.get("loc")
    where = ".".join(str(part) for part in place) if is_list(place) else ""
    return f"{where}: {item.get('msg')}" if where else str(item.get("msg"))


def _plain_text(text: str) -> str:
    if "<" in text:
        title = _TITLE.search(text)
        text = title.group(1) if title else _TAG.sub(" ", text)
    return " ".join(text.split())[:_MAX_TEXT]


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None

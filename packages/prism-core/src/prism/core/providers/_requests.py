"""What the request builders of all wires share: encoding, joining, merging, ids."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from operator import is_
from typing import Any, Final, Generic, TypeVar

import msgspec

from prism.core._contracts import Notice, ProviderRequest
from prism.core._errors import ProviderError
from prism.core._wire import ImageBlock, ModelConfig, to_plain
from prism.core.providers._json import as_object, is_list, is_object

T = TypeVar("T")

FORBIDDEN_BODY_KEYS: Final = frozenset(
    {"model", "messages", "input", "contents", "stream", "tools"}
)
"""Parts of a request's body that `extra` and `compat` cannot replace."""

_encoder = msgspec.json.Encoder()
_ESCAPED_NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_ID_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def encode_sent(value: Any) -> bytes:
    """*value* as JSON for a vendor; lone surrogates and NUL become U+FFFD in this copy alone.

    Raises:
        ProviderError: `invalid_request`, when it nests too deep or is no JSON.
    """
    try:
        data = _encoder.encode(value)
    except (UnicodeEncodeError, OverflowError):
        data = _encode_repaired(value)
    except RecursionError:
        raise _too_deep() from None
    except TypeError as error:
        raise ProviderError(f"The request is not JSON: {error}.", code="invalid_request") from None
    return _encode_repaired(value) if b"\\u0000" in data else data


def encode_clean(value: Any) -> bytes:
    """`encode_sent` for a value that is known to hold no NUL: the search for it costs most.

    Raises:
        ProviderError: As `encode_sent`.
    """
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError):
        return encode_sent(value)


def _encode_repaired(value: Any) -> bytes:
    try:
        text = json.dumps(to_plain(value), ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise _too_deep() from None
    text = _ESCAPED_NUL.sub("\\1\ufffd", text)
    # Through UTF-16 two halves that stand together become one character again.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def encode_body(body: Mapping[str, Any]) -> bytes:
    """The body of a request; `msgspec.Raw` and lists of such are taken as they are.

    Raises:
        ProviderError: `invalid_request`.
    """
    return _encoder.encode(
        {
            key: value if _is_raw(value) else msgspec.Raw(encode_sent(value))
            for key, value in body.items()
        }
    )


def _is_raw(value: Any) -> bool:
    return isinstance(value[0] if is_list(value) and value else value, msgspec.Raw)


def _too_deep() -> ProviderError:
    return ProviderError("The request nests too deep to be sent.", code="invalid_request")


class LastCall(Generic[T]):
    """A pure function that is mostly called with the very arguments of the call before.

    Lists are not remembered: they may have changed.
    """

    __slots__ = ("_function", "_last")

    def __init__(self, function: Callable[..., T]) -> None:
        self._function = function
        self._last: tuple[tuple[Any, ...], T] | None = None

    def __call__(self, *args: Any) -> T:
        """What the function gives."""
        last = self._last
        if last is not None and all(map(is_, last[0], args)):
            return last[1]
        value = self._function(*args)
        if not any(map(is_list, args)):
            self._last = (args, value)
        return value


def join_texts(texts: Sequence[str]) -> str:
    """The texts as one; an empty line parts two of which neither has white space at the seam."""
    if len(texts) == 1:
        return texts[0]
    joined = ""
    for text in texts:
        if joined and text and not joined[-1].isspace() and not text[0].isspace():
            joined += "\n\n"
        joined += text
    return joined


def image_url(block: ImageBlock) -> str:
    """The image's address, or its bytes as a `data:` URL."""
    if block.url is not None:
        return block.url
    return f"data:{block.mime_type or 'image/png'};base64,{block.data or ''}"


def takes_images(model: ModelConfig) -> bool:
    """Whether the model takes images; yes, unless its capabilities say otherwise."""
    capabilities = model.capabilities
    kinds = None if capabilities is None else capabilities.input
    return kinds is None or "image" in kinds


def max_tokens(request: ProviderRequest) -> int | None:
    """`parameters.maxTokens`, checked.

    Raises:
        ProviderError: `invalid_request`, when it is no positive integer.
    """
    parameters = request.model.parameters or {}
    value = parameters.get("maxTokens", parameters.get("max_tokens"))
    if value is not None and (type(value) is not int or value <= 0):
        raise ProviderError(
            f"parameters.maxTokens must be a positive integer, not {value!r}.",
            code="invalid_request",
        )
    return value


def merge_body(
    body: dict[str, Any],
    request: ProviderRequest,
    *,
    compat_body: Mapping[str, Any] | None,
    notices: list[Notice],
    deep: Collection[str] = (),
) -> None:
    """Merge what the host wants into *body*: shallowly, each over the one before.

    These are *compat_body*, `options.compat["thinking"]["body"]` and `options.extra["body"]`.
    None of them can set one of `FORBIDDEN_BODY_KEYS`. Objects under the keys of *deep* are merged
    too, key by key.
    """
    options = request.options
    fragments: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("compat.body", compat_body or {}),
        ("thinking", as_object(as_object((options.compat or {}).get("thinking")).get("body"))),
        ("extra.body", as_object((options.extra or {}).get("body"))),
    )
    for source, fragment in fragments:
        for key, value in fragment.items():
            if key in FORBIDDEN_BODY_KEYS:
                notices.append(
                    Notice(
                        code="body_key_ignored",
                        message=f"{source} cannot set {key!r}; it was left out of the request.",
                    )
                )
            elif key in deep and is_object(value) and is_object(body.get(key)):
                body[key] = {**body[key], **value}
            else:
                body[key] = value


def drop_parameters(
    body: dict[str, Any], names: Collection[str], request: ProviderRequest, notices: list[Notice]
) -> None:
    """Take *names* out of *body*, and what `options.compat["thinking"]["drop"]` lists."""
    drop = as_object((request.options.compat or {}).get("thinking")).get("drop")
    refused = [*names, *(drop if is_list(drop) else ())]
    dropped = [name for name in dict.fromkeys(refused) if body.pop(name, None) is not None]
    if dropped:
        notices.append(
            Notice(
                code="sampling_dropped",
                message=f"{request.model.model} takes no {', '.join(dropped)}: left out.",
            )
        )


def cache_key(request: ProviderRequest) -> str | None:
    """A digest of the cache key, else of the session id; `None` without either, or for `none`."""
    options = request.options
    key = options.cache_key or options.session_id
    if key is None or options.cache_retention == "none":
        return None
    return "p-" + blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class IdMap(dict[str, str]):
    """Maps call ids to what a wire accepts: the same id always alike, two ids never alike.

    An id's place among those that were asked for decides, so ids to come change nothing.

    Args:
        accepts: Whether an id can be sent as it is.
        length: Of the ids that replace the others: letters and digits.
        prefix: In front of a replaced id, counted in *length*.
    """

    def __init__(self, accepts: Callable[[str], bool], *, length: int, prefix: str = "") -> None:
        super().__init__()
        self._accepts = accepts
        self._length = length
        self._prefix = prefix
        self._taken: set[str] = set()

    def __missing__(self, call_id: str) -> str:
        sent = call_id if self._accepts(call_id) and call_id not in self._taken else ""
        attempt = 0
        while not sent or sent in self._taken:
            sent = self._digest(call_id, attempt)
            attempt += 1
        self[call_id] = sent
        self._taken.add(sent)
        return sent

    def _digest(self, call_id: str, attempt: int) -> str:
        seed = f"{attempt}:{call_id}".encode("utf-8", "surrogatepass")
        number = int.from_bytes(blake2b(seed, digest_size=24).digest())
        letters: list[str] = []
        for _ in range(self._length - len(self._prefix)):
            number, place = divmod(number, len(_ID_ALPHABET))
            letters.append(_ID_ALPHABET[place])
        return self._prefix + "".join(letters)

"""The skeleton of every adapter: build, send, map the status, decode the stream, end it once.

A wire brings two things. Its provider derives from `HttpProvider` and builds a `WireCall` from a
request; its decoder derives from `WireStream` (in `_stream`) and turns each server-sent event into
Prism's.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit, urlunsplit

import anyio
import msgspec

from prism.core._contracts import (
    BlockFinished,
    CredentialRequest,
    CredentialResolver,
    Done,
    Failed,
    Notice,
    ProviderEvent,
    ProviderRequest,
    Secret,
)
from prism.core._errors import CredentialError, PrismError, ProviderError, UsageError
from prism.core._support.ids import Clock, system_clock
from prism.core._support.redaction import MAX_SECRET_CHARS
from prism.core.providers._errors_map import ErrorMapper
from prism.core.providers._http import (
    HttpResponse,
    HttpTimeouts,
    HttpTransport,
    HttpxTransport,
    origin,
)
from prism.core.providers._json import is_object
from prism.core.providers._sse import MAX_EVENT_BYTES, SseDecoder
from prism.core.providers._stream import StreamReader, WireStream, stamped
from prism.core.providers._transform import Conversations

if TYPE_CHECKING:
    import httpx2

MAX_ERROR_BODY_BYTES: Final = 65_536
"""How much of an error's body is read."""

_DRAIN_SECONDS: Final = 0.1
_MIN_SECRET: Final = 4
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_SECRET_HEADER: Final = re.compile(r"authorization|api-?key|token|secret|cookie", re.IGNORECASE)
_RESERVED_HEADERS: Final = frozenset({
    "host", "content-length", "transfer-encoding", "connection", "content-type", "accept-encoding",
})  # fmt: skip


class WireCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request, ready to be sent but for its credential.

    Attributes:
        path: Appended to the provider's base URL, with its own query if it has one.
        stream: Makes the decoder of the answer.
        headers: The wire's own.
        auth_header: Carries the credential: `authorization` after `Bearer`, any other alone.
        notices: What the host should know of how the request was built.
        empty_body_overflow: See `ErrorMapper`.
        prefix: Digest of what is sent (`Sent.prefix`); it is stamped into the reasoning that comes
            back, so that a later request can tell whether its past is still the same.
    """

    path: str
    body: bytes
    stream: Callable[[ErrorMapper], WireStream]
    headers: dict[str, str] = {}
    auth_header: str = "authorization"
    notices: tuple[Notice, ...] = ()
    empty_body_overflow: bool = False
    prefix: str | None = None


class HttpProvider(ABC):
    """Base of the adapters.

    Args:
        id: Id under which models name the provider.
        base_url: Address without the wire's own path; a query is kept.
        credential: The key itself. For a key that may change, give a resolver.
        credential_resolver: Asked before each request for `apiKey` of this provider's id.
        headers: Sent with every request.
        timeouts: For each step; `ProviderOptions.timeout_ms` overrides `idle_ms`.
        client: The host's own client; never closed here.
        transport: Another way to speak HTTP, instead of *client*.
        max_event_bytes: Limit of one server-sent event.
        clock: For hints that name a time of day.

    Raises:
        UsageError: A wrong base URL or header, two credentials, or `missing_extra`.
    """

    api: ClassVar[str]
    """The wire's name, as in `Replay.api`."""

    ends_promptly: ClassVar[bool] = True
    """What follows the last event is read for at most `_DRAIN_SECONDS`."""

    def __init__(
        self,
        *,
        id: str,  # noqa: A002
        base_url: str,
        credential: Secret | str | None = None,
        credential_resolver: CredentialResolver | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: HttpTimeouts | None = None,
        client: httpx2.AsyncClient | None = None,
        transport: HttpTransport | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
        clock: Clock = system_clock,
    ) -> None:
        if credential is not None and credential_resolver is not None:
            raise UsageError("Give either credential or credential_resolver, not both.")
        if client is not None and transport is not None:
            raise UsageError("Give either client or transport, not both.")
        self.id = id
        self.base_url: str = _checked_base_url(base_url)
        self._credential = Secret(credential) if isinstance(credential, str) else credential
        self._resolver = credential_resolver
        self._own_headers = _checked_headers(headers or {}, UsageError, "headers")
        self._timeouts = timeouts or HttpTimeouts()
        self._transport = transport or HttpxTransport(client)
        self._max_event_bytes = max_event_bytes
        self._clock = clock
        self._conversations = Conversations()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, base_url={origin(self.base_url)!r})"

    @abstractmethod
    def prepare(self, request: ProviderRequest) -> WireCall:
        """Build the call: pure, and without the credential.

        Raises:
            ProviderError: The request cannot be put into this wire.
        """

    async def aclose(self) -> None:
        """Close the connections that the provider opened in this event loop."""
        await self._transport.aclose()

    async def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
        """Answer one request; close the generator to leave early.

        A vendor's or the network's failure is a `Failed`; only programming errors and
        cancellation raise.
        """
        try:
            secret = await self._secret()
            call = self.prepare(request)
            headers = self._headers(request, call, secret)
            timeouts = self._timeouts_of(request)
        except PrismError as error:
            code = "auth" if isinstance(error, CredentialError) else None
            yield Failed(error=ErrorMapper().exception(error, code=code))
            return
        for notice in call.notices:
            yield notice
        errors = ErrorMapper(
            secrets=_secrets_in(headers, secret),
            empty_body_overflow=call.empty_body_overflow,
            clock=self._clock,
        )
        stream = call.stream(errors)
        reader = StreamReader(stream, SseDecoder(max_event_bytes=self._max_event_bytes))
        prefix = call.prefix
        out: list[ProviderEvent] = []
        response: HttpResponse | None = None
        try:
            response = await self._transport.send(
                "POST",
                self._url(call.path),
                headers=headers,
                content=call.body,
                timeouts=timeouts,
            )
            errors.headers = response.headers
            chunks = response.aiter_bytes()
            if not 200 <= response.status < 300:
                body = await _read_start(chunks)
                where = origin(self.base_url)
                yield Failed(error=errors.http(response.status, body, where=where))
                return
            async for chunk in chunks:
                reader.feed(chunk, out)
                if stream.ended:
                    break
                for event in out:
                    yield stamped(event, prefix) if type(event) is BlockFinished else event
                out.clear()
            else:
                reader.finish(out)
            _add_window_notice(request, out)
            try:
                for event in out:
                    yield stamped(event, prefix) if type(event) is BlockFinished else event
            finally:
                # What follows the last event is read, so that the connection can be reused.
                await _drain(chunks)
        except PrismError as error:
            if response is None:
                yield Failed(error=errors.exception(error))
                return
            reader.cut(error, out)
            for event in out:
                yield stamped(event, prefix) if type(event) is BlockFinished else event
        finally:
            if response is not None:
                await response.aclose()

    async def _secret(self) -> str | None:
        credential = self._credential
        if self._resolver is not None:
            credential = await self._resolver.resolve(CredentialRequest(provider=self.id))
            if credential is None:
                raise ProviderError(
                    f"No credential named apiKey was found for the provider {self.id!r}.",
                    code="auth",
                    details={"reason": "missing_credential"},
                )
        if credential is None:
            return None
        secret = credential.reveal()
        if not 0 < len(secret) <= MAX_SECRET_CHARS or not _HEADER_VALUE.fullmatch(secret):
            # Said here, because the client's own message would show it.
            raise ProviderError(
                f"The credential of the provider {self.id!r} is empty, longer than "
                f"{MAX_SECRET_CHARS} characters, or has some that an HTTP header cannot carry, "
                "such as a line break.",
                code="auth",
                details={"reason": "invalid_credential"},
            )
        return secret

    def _headers(
        self, request: ProviderRequest, call: WireCall, secret: str | None
    ) -> dict[str, str]:
        options = request.options
        extra = (options.extra or {}).get("headers")
        asked = {**(options.headers or {}), **(extra if is_object(extra) else {})}
        bearer = "Bearer " if call.auth_header == "authorization" else ""
        return {
            "user-agent": "prism",
            **call.headers,
            **self._own_headers,
            **_checked_headers(asked, ProviderError, "options.headers"),
            **({} if secret is None else {call.auth_header: bearer + secret}),
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "content-type": "application/json",
        }

    def _timeouts_of(self, request: ProviderRequest) -> HttpTimeouts:
        idle_ms = request.options.timeout_ms
        if idle_ms is None:
            return self._timeouts
        steps = msgspec.structs.asdict(self._timeouts)
        return HttpTimeouts(**{**steps, "idle_ms": idle_ms})

    def _url(self, path: str) -> str:
        base = urlsplit(self.base_url)
        path, _, query = path.partition("?")
        return urlunsplit(
            base._replace(
                path=base.path.rstrip("/") + path,
                query="&".join(part for part in (base.query, query) if part),
            )
        )


async def _read_start(chunks: AsyncIterator[bytes]) -> bytes:
    parts: list[bytes] = []
    left = MAX_ERROR_BODY_BYTES
    try:
        async for chunk in chunks:
            parts.append(chunk[:left])
            left -= len(chunk)
            if left <= 0:
                break
    except ProviderError:
        pass  # the status alone says enough
    return b"".join(parts)


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    left = MAX_ERROR_BODY_BYTES
    with anyio.move_on_after(_DRAIN_SECONDS):
        try:
            async for chunk in chunks:
                left -= len(chunk)
                if left < 0:
                    return
        except ProviderError:
            return


def _add_window_notice(request: ProviderRequest, out: list[ProviderEvent]) -> None:
    """Some vendors cut a conversation that is too long and say nothing: the usage tells."""
    done = out[-1] if out else None
    window = None if request.model.limits is None else request.model.limits.context_window
    if not isinstance(done, Done) or done.usage is None or window is None:
        return
    usage = done.usage
    used = sum(
        part or 0
        for part in (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    )
    if used > window:
        out.insert(
            -1,
            Notice(
                code="context_overflow",
                message=f"The request had {used} tokens, more than the model's context window of "
                f"{window}: the vendor may have cut it.",
            ),
        )


def _checked_base_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname)
        valid = valid and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    else:
        if "@" in parts.netloc:
            raise UsageError("base_url holds a password; give it as a header or a credential.")
    if not valid:
        raise UsageError(f"base_url must be an http or https address, not {url!r}.")
    return url


def _checked_headers(
    headers: Mapping[str, Any], kind: type[PrismError], where: str
) -> dict[str, str]:
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or name.lower() in _RESERVED_HEADERS:
            raise kind(
                f"{where}: {name!r} is not a header that can be set.", code="invalid_request"
            )
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise kind(
                f"{where}: the value of {name!r} must be printable ASCII.", code="invalid_request"
            )
        checked[name.lower()] = value
    return checked


def _secrets_in(headers: Mapping[str, str], secret: str | None) -> tuple[str, ...]:
    """What must not come back in a message: the credential, and what looks like one."""
    found = {value for name, value in headers.items() if _SECRET_HEADER.search(name)}
    found |= {value.partition(" ")[2] for value in found}  # without "Bearer"
    if secret is not None:
        found.add(secret)
    return tuple(
        value for value in found if value == secret or _MIN_SECRET <= len(value) <= MAX_SECRET_CHARS
    )

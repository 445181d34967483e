"""The HTTP seam: what an adapter needs of a client, and the one on `httpx2`.

Nothing above this module knows `httpx2`, and its exceptions end here.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import anyio
import msgspec
from anyio.lowlevel import RunVar

from prism.core._errors import ProviderError, UsageError
from prism.core._support.limits import positive_int, truncate_utf8

if TYPE_CHECKING:
    import httpx2

MAX_TIMEOUT_MS: Final = 86_400_000
"""Hard cap of every timeout: a day."""

_MAX_CONNECTIONS: Final = 1_000
_MAX_IDLE_CONNECTIONS: Final = 100
_IDLE_CONNECTION_SECONDS: Final = 60.0
_MAX_CAUSE_BYTES: Final = 300
_MAX_WAITING_CHUNKS: Final = 1_000


class HttpTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long each step of a request may take; the whole is bounded by the caller's own scope.

    Attributes:
        connect_ms: To open a connection, TLS included; default 10 s.
        write_ms: Each write of the request; default 60 s.
        pool_ms: To get a connection when all are in use; default 10 s.
        idle_ms: How long the server may send nothing, also before the first byte; default
            120 s, because reasoning models can be silent for minutes.

    Raises:
        UsageError: `invalid_limit`, unless each is an integer from 1 to 86,400,000.
    """

    connect_ms: int = 10_000
    write_ms: int = 60_000
    pool_ms: int = 10_000
    idle_ms: int = 120_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            positive_int(name, getattr(self, name), cap=MAX_TIMEOUT_MS)


class HttpResponse(Protocol):
    """An answer whose body has not been read yet."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The body as it arrives, without its transfer and content encoding; only once.

        Raises:
            ProviderError: `connection` or `timeout`, when the body breaks off.
        """
        ...

    async def aclose(self) -> None:
        """Free the connection, however much of the body was read; also when cancelled."""
        ...


class HttpTransport(Protocol):
    """Sends one request and streams its answer; follows no redirect and tries nothing again."""

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes,
        timeouts: HttpTimeouts,
    ) -> HttpResponse:
        """Send the request; the caller closes the response.

        Raises:
            ProviderError: `connection`, `timeout` or `invalid_request`.
        """
        ...

    async def aclose(self) -> None:
        """Close what the transport itself opened in the running event loop."""
        ...


class HttpxTransport:
    """`HttpTransport` on `httpx2`.

    Without *client* it makes one client per event loop, when the first request is sent; that
    client takes proxies and TLS roots from the environment. A host's own client is used as it is
    and never closed.

    Raises:
        UsageError: `missing_extra`, when `httpx2` is not installed.
    """

    def __init__(self, client: httpx2.AsyncClient | None = None) -> None:
        # Loaded here and not inside the event loop: importing both takes a quarter of a second.
        self._httpx2 = _load_httpx2()
        self.failures: tuple[type[Exception], ...] = (
            self._httpx2.HTTPError,
            self._httpx2.InvalidURL,
        )
        self._client = client
        self._clients: RunVar[httpx2.AsyncClient | None] = RunVar("prism_http_client", None)

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes,
        timeouts: HttpTimeouts,
    ) -> HttpResponse:
        """See `HttpTransport.send`."""
        client = self._client or self._own_client()
        try:
            request = client.build_request(
                method,
                url,
                headers=dict(headers),
                content=content,
                timeout=self._httpx2.Timeout(
                    connect=timeouts.connect_ms / 1000,
                    read=timeouts.idle_ms / 1000,
                    write=timeouts.write_ms / 1000,
                    pool=timeouts.pool_ms / 1000,
                ),
            )
            response = await client.send(request, stream=True, follow_redirects=False)
        except self.failures as error:
            raise self.translate(error, url, timeouts) from None
        return _HttpxResponse(self, response, url, timeouts)

    async def aclose(self) -> None:
        """Close the running event loop's own client; a later request makes a new one."""
        client = self._clients.get()
        if client is not None:
            self._clients.set(None)
            await client.aclose()

    def _own_client(self) -> httpx2.AsyncClient:
        client = self._clients.get()
        if client is None:
            client = self._httpx2.AsyncClient(
                follow_redirects=False,
                limits=self._httpx2.Limits(
                    max_connections=_MAX_CONNECTIONS,
                    max_keepalive_connections=_MAX_IDLE_CONNECTIONS,
                    keepalive_expiry=_IDLE_CONNECTION_SECONDS,
                ),
            )
            self._clients.set(client)
        return client

    def translate(self, error: Exception, url: str, timeouts: HttpTimeouts) -> ProviderError:
        """What went wrong, without the request: a header or a URL may hold a secret."""
        names = self._httpx2
        kind = type(error).__name__
        where = origin(url)
        text = truncate_utf8(str(error), _MAX_CAUSE_BYTES)
        cause = f" ({kind}: {text})" if text else f" ({kind})"
        if isinstance(error, names.TimeoutException):
            return ProviderError(_timeout_text(kind, where, timeouts), code="timeout")
        if isinstance(
            error, names.InvalidURL | names.UnsupportedProtocol | names.LocalProtocolError
        ):
            return ProviderError(
                f"The request to {where} cannot be sent as HTTP ({kind}): check base_url, the "
                "headers and the credential for characters that do not belong there.",
                code="invalid_request",
            )
        if isinstance(error, names.DecodingError):
            return ProviderError(
                f"{where} sent a body that its content-encoding does not fit{cause}.",
                code="malformed_output",
            )
        if isinstance(error, names.ConnectError):
            return ProviderError(
                f"Cannot connect to {where}{cause}. Check base_url and that the server runs.",
                code="connection",
            )
        return ProviderError(f"The connection to {where} failed{cause}.", code="connection")


class _HttpxResponse:
    """`HttpResponse` over a streaming response of `httpx2`."""

    __slots__ = ("_body", "_response", "_timeouts", "_transport", "_url", "headers", "status")

    def __init__(
        self,
        transport: HttpxTransport,
        response: httpx2.Response,
        url: str,
        timeouts: HttpTimeouts,
    ) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = {
            name.lower(): value for name, value in response.headers.items()
        }
        self._response = response
        self._transport = transport
        self._url = url
        self._timeouts = timeouts
        self._body: AsyncGenerator[bytes] | None = None

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        self._body = self._read()
        return self._body

    async def aclose(self) -> None:
        try:
            if self._body is not None:
                await _stop(self._body)
        finally:
            with suppress(*self._transport.failures):
                await self._response.aclose()

    async def _read(self) -> AsyncGenerator[bytes]:
        response = self._response
        # Undoing an encoding costs a good part of each chunk, and we ask for none.
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        is_raw = encoding in {"", "identity"} and not response.is_stream_consumed
        chunks = response.aiter_raw() if is_raw else response.aiter_bytes()
        try:
            async for chunk in chunks:
                yield chunk
        except self._transport.failures as error:
            raise self._transport.translate(error, self._url, self._timeouts) from None
        finally:
            await chunks.aclose()


async def _stop(body: AsyncGenerator[bytes]) -> None:
    """End a body that is not read to its end as cancellation would.

    Closing the generator instead leaves an inner one of `httpx2` to the garbage collector: a
    stray task on asyncio, a warning on trio.
    """
    with anyio.CancelScope() as scope:
        scope.cancel()
        for _ in range(_MAX_WAITING_CHUNKS):
            try:
                await anext(body)
            except (StopAsyncIteration, ProviderError):
                return
    await body.aclose()


def origin(url: str) -> str:
    """Scheme, host and port of *url*: what may be shown of it."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}"


def _timeout_text(kind: str, where: str, timeouts: HttpTimeouts) -> str:
    if kind == "ConnectTimeout":
        return f"{where} did not accept a connection within {timeouts.connect_ms} ms."
    if kind == "PoolTimeout":
        return (
            f"No connection to {where} became free within {timeouts.pool_ms} ms: too many "
            "requests at once."
        )
    if kind == "WriteTimeout":
        return f"{where} did not take the request within {timeouts.write_ms} ms."
    return f"{where} sent nothing for {timeouts.idle_ms} ms."


def _load_httpx2() -> Any:
    try:
        importlib.import_module("httpcore2")
        return importlib.import_module("httpx2")
    except ImportError:
        raise UsageError(
            "This provider speaks HTTP and needs the package httpx2: install the extra "
            "prism-core[http].",
            code="missing_extra",
            details={"extra": "http"},
        ) from None

"""Google's Gemini API, and servers that speak it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from prism.core._contracts import CredentialResolver, ProviderRequest, Secret
from prism.core._support.ids import Clock, IdMaker, random_id, system_clock
from prism.core._wire import ModelConfig
from prism.core.providers._base import HttpProvider, WireCall
from prism.core.providers._gemini.compat import GeminiCompat, resolve_compat
from prism.core.providers._gemini.contents import API
from prism.core.providers._gemini.request import build_call, build_head
from prism.core.providers._gemini.stream import GeminiStream
from prism.core.providers._http import HttpTimeouts, HttpTransport
from prism.core.providers._requests import LastCall
from prism.core.providers._sse import MAX_EVENT_BYTES
from prism.core.providers._switches import checked_switches

if TYPE_CHECKING:
    import httpx2


class GoogleProvider(HttpProvider):
    """Speaks `POST {base_url}/v1beta/models/{model}:streamGenerateContent`.

    Args:
        id: Id under which models name the provider.
        base_url: Address without the API's version, or with one, such as Vertex AI's up to
            `/publishers/google`.
        credential: The API key itself; for Vertex AI an access token. It goes into a header and
            never into the address. Without one no key is sent.
        credential_resolver: Asked before each request for `apiKey` of this provider's id.
        compat: Switches that differ from what is known: fields of `GeminiCompat`.
        headers: Sent with every request.
        timeouts: For each step of a request; `ProviderOptions.timeout_ms` overrides `idle_ms`.
        client: The host's own client; never closed here. Without one, one per event loop is made.
        transport: Another way to speak HTTP, instead of *client*.
        max_event_bytes: Limit of one server-sent event; default 32 MiB.
        new_id: Makes ids for calls to which the vendor gives none.
        clock: For retry hints that name a time of day.

    Raises:
        UsageError: A wrong argument, or `missing_extra` when `prism-core[http]` is not installed.
    """

    api: ClassVar[str] = API

    def __init__(
        self,
        *,
        id: str = "google",  # noqa: A002
        base_url: str = "https://generativelanguage.googleapis.com",
        credential: Secret | str | None = None,
        credential_resolver: CredentialResolver | None = None,
        compat: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: HttpTimeouts | None = None,
        client: httpx2.AsyncClient | None = None,
        transport: HttpTransport | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
        new_id: IdMaker = random_id,
        clock: Clock = system_clock,
    ) -> None:
        super().__init__(
            id=id,
            base_url=base_url,
            credential=credential,
            credential_resolver=credential_resolver,
            headers=headers,
            timeouts=timeouts,
            client=client,
            transport=transport,
            max_event_bytes=max_event_bytes,
            clock=clock,
        )
        self._compat = checked_switches(GeminiCompat, compat)
        self._new_id = new_id
        self._head = LastCall(build_head)
        self._resolved = LastCall(partial(resolve_compat, base_url, self._compat))

    def supports_output_schema(self, model: ModelConfig) -> bool:
        """Whether the model can be held to a schema (`output_schema` in `GeminiCompat`)."""
        return self._resolved(model).output_schema

    def prepare(self, request: ProviderRequest) -> WireCall:
        """See `HttpProvider.prepare`."""
        compat = self._resolved(request.model)
        head = self._head(request.system, request.tools, compat, request.model)
        return build_call(
            request,
            compat,
            head,
            self._conversations,
            base_url=self.base_url,
            stream=lambda errors: GeminiStream(errors, self._new_id),
        )

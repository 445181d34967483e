"""Chat Completions, of OpenAI and of the vendors and servers that speak it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from prism.core._contracts import CredentialResolver, ProviderRequest, Secret
from prism.core._support.ids import Clock, IdMaker, random_id, system_clock
from prism.core._wire import ModelConfig
from prism.core.providers._base import HttpProvider, WireCall
from prism.core.providers._http import HttpTimeouts, HttpTransport
from prism.core.providers._openai_chat.compat import checked_compat, resolve_compat
from prism.core.providers._openai_chat.request import API, build_body, build_head
from prism.core.providers._openai_chat.stream import ChatStream
from prism.core.providers._requests import LastCall, cache_key
from prism.core.providers._sse import MAX_EVENT_BYTES

if TYPE_CHECKING:
    import httpx2


class OpenAIChatProvider(HttpProvider):
    """Speaks `POST {base_url}/chat/completions` with OpenAI or any server like it.

    Args:
        id: Id under which models name the provider; a vendor's name, such as `mistral`, also
            sets that vendor's switches.
        base_url: Address without `/chat/completions`; its host sets the switches of vendors that
            are known.
        credential: The API key itself. Without one no key is sent, as local servers like it.
        credential_resolver: Asked before each request for `apiKey` of this provider's id.
        compat: Switches that differ from what is known: fields of `OpenAIChatCompat`.
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
        id: str = "openai-chat",  # noqa: A002
        base_url: str = "https://api.openai.com/v1",
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
        self._compat = checked_compat(compat)
        self._new_id = new_id
        self._head = LastCall(build_head)
        self._resolved = LastCall(partial(resolve_compat, id, base_url, self._compat))

    def supports_output_schema(self, model: ModelConfig) -> bool:
        """Whether the endpoint takes a JSON Schema (`response_format` in `OpenAIChatCompat`)."""
        return self._resolved(model).response_format == "json_schema"

    def prepare(self, request: ProviderRequest) -> WireCall:
        """See `HttpProvider.prepare`."""
        compat = self._resolved(request.model)
        head = self._head(request.system, request.tools, compat, request.model)
        body, notices, prefix = build_body(request, compat, head, self._conversations)
        headers: dict[str, str] = {}
        if compat.affinity_header is not None and (key := cache_key(request)) is not None:
            headers[compat.affinity_header] = key
        return WireCall(
            path="/chat/completions",
            body=body,
            stream=lambda errors: ChatStream(errors, compat, self._new_id),
            headers=headers,
            auth_header=compat.auth_header,
            notices=tuple(notices),
            empty_body_overflow=compat.empty_body_overflow,
            prefix=prefix,
        )

"""OpenAI's Responses API, and the vendors and servers that speak it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from prism.core._contracts import CredentialResolver, ProviderRequest, Secret
from prism.core._support.ids import Clock, IdMaker, random_id, system_clock
from prism.core.providers._base import HttpProvider, WireCall
from prism.core.providers._http import HttpTimeouts, HttpTransport
from prism.core.providers._openai_responses.compat import OpenAIResponsesCompat, resolve_compat
from prism.core.providers._openai_responses.messages import API
from prism.core.providers._openai_responses.request import build_body, build_head
from prism.core.providers._openai_responses.stream import ResponsesStream
from prism.core.providers._requests import LastCall
from prism.core.providers._sse import MAX_EVENT_BYTES
from prism.core.providers._switches import checked_switches

if TYPE_CHECKING:
    import httpx2


class OpenAIResponsesProvider(HttpProvider):
    """Speaks `POST {base_url}/responses` with OpenAI or any server like it.

    Nothing is stored at the vendor's: the whole conversation is sent each time, reasoning with
    it, encrypted as it came. `options.compat["allowedTools"]` lists the tools that may be called
    in one request, while the tools that are sent stay the same. `options.extra["body"]` is merged
    into the body.

    Args:
        id: Id under which models name the provider.
        base_url: Address without `/responses`.
        credential: The API key itself. Without one no key is sent, as local servers like it.
        credential_resolver: Asked before each request for `apiKey` of this provider's id.
        compat: Switches that differ from what is known: fields of `OpenAIResponsesCompat`.
        headers: Sent with every request.
        timeouts: For each step of a request; `ProviderOptions.timeout_ms` overrides `idle_ms`.
        client: The host's own client; never closed here. Without one, one per event loop is made.
        transport: Another way to speak HTTP, instead of *client*.
        max_event_bytes: Limit of one server-sent event; default 32 MiB. The last event of an
            answer repeats the whole of it.
        new_id: Makes ids for calls to which the vendor gives none.
        clock: For retry hints that name a time of day.

    Raises:
        UsageError: A wrong argument, or `missing_extra` when `prism-core[http]` is not installed.
    """

    api: ClassVar[str] = API
    supports_output_schema: ClassVar[bool] = True

    def __init__(
        self,
        *,
        id: str = "openai",  # noqa: A002
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
        self._compat = checked_switches(OpenAIResponsesCompat, compat)
        self._new_id = new_id
        self._head = LastCall(build_head)
        self._resolved = LastCall(partial(resolve_compat, base_url, self._compat))

    def prepare(self, request: ProviderRequest) -> WireCall:
        """See `HttpProvider.prepare`."""
        compat = self._resolved(request.model)
        head = self._head(request.system, request.tools, compat, request.model)
        built = build_body(request, compat, head, self._conversations)
        return WireCall(
            path="/responses",
            body=built.body,
            stream=lambda errors: ResponsesStream(errors, self._new_id, effort=built.effort),
            auth_header=compat.auth_header,
            notices=tuple(built.notices),
            prefix=built.prefix,
        )

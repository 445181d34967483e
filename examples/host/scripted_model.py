"""Stands in for a model, so that the example runs anywhere."""

from __future__ import annotations

from collections.abc import Iterable

from prism.core import ToolResultBlock, Usage
from prism.core.providers import ProviderEvent, ProviderRequest, done, text_delta, tool_call

REPORT = '{"animal": "otter", "kg": 6.0, "fed": true}'


def play(request: ProviderRequest) -> Iterable[ProviderEvent]:
    """What the keeper's model and the dietician's say, by what they read last."""
    last = request.messages[-1]
    asked = next((one.name for one in last.content if isinstance(one, ToolResultBlock)), None)
    if request.output_schema is not None:
        yield text_delta(REPORT)
    elif any("dietician for animals" in part for part in request.system):
        if asked is None:
            yield tool_call(id="", name="stock", arguments={"food": "fish"})
        else:
            yield text_delta("2 kg of fish for each otter.")
    elif asked == "dietician":
        yield tool_call(id="", name="feed", arguments={"animal": "otter", "kg": 60})
    elif asked == "feed":
        yield text_delta("The otters are fed.")
    elif asked == "stock" or "again" in last.text:
        yield tool_call(id="", name="stock", arguments={"food": "fish"})
    else:
        yield tool_call(id="", name="dietician", arguments={"prompt": "How much for an otter?"})
    yield done(usage=Usage(input_tokens=1_000, output_tokens=50))

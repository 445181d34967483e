"""OpenAI's Responses wire."""

from prism.core.providers._openai_responses.compat import OpenAIResponsesCompat
from prism.core.providers._openai_responses.provider import OpenAIResponsesProvider

__all__ = ["OpenAIResponsesCompat", "OpenAIResponsesProvider"]

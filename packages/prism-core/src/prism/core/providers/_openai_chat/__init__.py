"""The Chat Completions wire."""

from prism.core.providers._openai_chat.compat import OpenAIChatCompat
from prism.core.providers._openai_chat.provider import OpenAIChatProvider

__all__ = ["OpenAIChatCompat", "OpenAIChatProvider"]

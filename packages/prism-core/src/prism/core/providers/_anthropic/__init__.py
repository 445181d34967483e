"""The Anthropic Messages wire."""

from prism.core.providers._anthropic.compat import AnthropicCompat
from prism.core.providers._anthropic.provider import AnthropicProvider

__all__ = ["AnthropicCompat", "AnthropicProvider"]

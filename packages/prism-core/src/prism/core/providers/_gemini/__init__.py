"""The Gemini wire."""

from prism.core.providers._gemini.compat import GeminiCompat
from prism.core.providers._gemini.provider import GoogleProvider

__all__ = ["GeminiCompat", "GoogleProvider"]

"""Models, usage and errors as data."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

from prism.core._wire.base import WireStruct

THINKING_LEVELS: Final = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
"""From none to most. `none` is read as `off`."""


def is_thinking_level(value: object) -> TypeGuard[str]:
    """Whether *value* is one of `THINKING_LEVELS`."""
    return isinstance(value, str) and value in THINKING_LEVELS


def normalize_thinking_level(value: object) -> str | None:
    """*value* as one of `THINKING_LEVELS`, with `none` as `off`; `None` for anything else."""
    if value == "none":
        return "off"
    return value if is_thinking_level(value) else None


class ErrorInfo(WireStruct, frozen=True, kw_only=True):
    """An error as it crosses a boundary: bounded, redacted, JSON-safe.

    Attributes:
        message: What was wrong.
        name: The exception's class or the vendor's error type.
        code: Stable code.
        status: HTTP status.
        retry_after_ms: How long the other side asked to wait.
        cause: What it came from.
        details: Facts such as `used`, `limit`, `reason`, `requestId`.
    """

    message: str
    name: str | None = None
    code: str | int | None = None
    status: int | None = None
    retry_after_ms: int | float | None = None
    cause: Any = None
    details: dict[str, Any] | None = None


class Usage(WireStruct, frozen=True, kw_only=True):
    """Tokens and cost of one turn, or a sum.

    Attributes:
        input_tokens: Input that was neither read from nor written to a cache.
        output_tokens: All that was generated, reasoning included.
        reasoning_tokens: The part of `output_tokens` that was reasoning.
        cost: In `currency`.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_long_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None
    cost: int | float | None = None
    currency: str | None = None

    def __add__(self, other: Usage) -> Usage:
        """The sum; a cost in another currency is left out of it."""
        summed: dict[str, Any] = {
            name: _plus(getattr(self, name), getattr(other, name)) for name in _COUNTERS
        }
        same = self.currency == other.currency or self.cost is None or other.cost is None
        return Usage(
            **summed,
            cost=_plus(self.cost, other.cost) if same else self.cost,
            currency=self.currency or other.currency,
        )


_COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_long_tokens",
    "reasoning_tokens",
    "total_tokens",
)


def _plus(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return left + right


class ModelRef(WireStruct, frozen=True, kw_only=True):
    """Which model wrote a message."""

    provider: str
    model: str
    api: str | None = None


class ModelCapabilities(WireStruct, frozen=True, kw_only=True):
    """What a model can take and give; `input` and `output` name kinds such as `text`, `image`."""

    input: list[str] | None = None
    output: list[str] | None = None
    reasoning: bool | None = None
    tools: bool | None = None
    streaming: bool | None = None


class ModelLimits(WireStruct, frozen=True, kw_only=True):
    """Sizes in tokens."""

    context_window: int | None = None
    max_output_tokens: int | None = None


class ModelCost(WireStruct, frozen=True, kw_only=True):
    """Prices per `unit` tokens (default 1,000,000) in `currency` (default USD)."""

    input: int | float | None = None
    output: int | float | None = None
    cache_read: int | float | None = None
    cache_write: int | float | None = None
    currency: str | None = None
    unit: int | str | None = None


class ModelConfig(WireStruct, frozen=True, kw_only=True):
    """A model and how to ask it.

    Attributes:
        provider: Id under which a provider is registered.
        model: The vendor's name of the model.
        compat: What the endpoint can do, as the adapter's documentation lists it.
        parameters: Sampling and size, such as `maxTokens` and `temperature`.
    """

    provider: str
    model: str
    display_name: str | None = None
    capabilities: ModelCapabilities | None = None
    limits: ModelLimits | None = None
    cost: ModelCost | None = None
    compat: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None

"""A run's answer as a value of a type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from prism.core._contracts import Provider, Tool, ToolContext, ToolOutput
from prism.core._errors import DecodeError, ProviderError, UsageError
from prism.core._wire import ErrorInfo, ModelConfig, parse_json

FINAL_TOOL: Final = "final_answer"
"""The tool through which a model answers whose provider has no schema mode."""

MAX_OUTPUT_TRIES: Final = 3
"""Answers that may fail their validation before the run does."""

OutputMode: TypeAlias = Literal["schema", "tool"]


class Output:
    """What a run's answer has to be, and whether it came.

    With a provider that can hold the model to a schema, the answer's text is the value's JSON.
    With any other the model gets the tool `final_answer`.

    Args:
        kind: Any type that msgspec can decode.
        redact: Applied to what the model gave, before it becomes the value.

    Attributes:
        schema: JSON Schema of an object.
        mode: `schema` or `tool`.
        done: Whether a valid value came.
        value: It.
        tries: Answers so far that were not valid.
        error: What was wrong with the last one.

    Raises:
        UsageError: *kind* has no JSON Schema.
    """

    __slots__ = ("_kind", "_redact", "_wrap", "done", "error", "mode", "schema", "tries", "value")

    def __init__(self, kind: Any, *, redact: Callable[[Any], Any] | None = None) -> None:
        try:
            schema = type_schema(kind)
            # Vendors and tools take objects alone.
            self._wrap: bool = schema.get("type") != "object"
            if self._wrap:
                kind = msgspec.defstruct("Answer", [("value", kind)])
                schema = type_schema(kind)
        except (TypeError, NameError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UsageError(f"output={kind!r} cannot become a JSON Schema: {reason}") from None
        self._kind: Any = kind
        self._redact: Callable[[Any], Any] | None = redact
        self.schema: dict[str, Any] = _closed(schema)
        self.mode: OutputMode = "tool"
        self.done: bool = False
        self.value: Any = None
        self.tries: int = 0
        self.error: str | None = None

    def choose_mode(self, provider: Provider, model: ModelConfig) -> None:
        """`schema` when the provider holds *model* to any schema, else `tool`."""
        supports: Any = getattr(provider, "supports_output_schema", False)
        if callable(supports):
            supports = supports(model)
        # Some vendors refuse objects whose properties are not known.
        self.mode = "schema" if supports is True and not _has_open_object(self.schema) else "tool"

    def renew(self) -> None:
        """Something new was asked, so another answer has to come."""
        self.done = False
        self.value = None
        self.tries = 0

    def missed(self, error: str) -> None:
        """Count an answer that was not valid."""
        self.tries += 1
        self.error = error

    def take_text(self, text: str) -> bool:
        """Take an answer's text when it is valid."""
        try:
            self._take(parse_json(_unfenced(text)))
        except (DecodeError, msgspec.ValidationError) as error:
            wrong = str(error)
            if self.mode == "tool":
                wrong = f"it was not given with {FINAL_TOOL}"
            elif not text.strip():
                wrong = "it is empty"
            self.missed(wrong)
            return False
        return True

    def _take(self, tree: Any) -> None:
        self.value = self._convert(tree)
        self.done = True

    def _convert(self, tree: Any) -> Any:
        if self._redact is not None:
            tree = self._redact(tree)
        value = msgspec.convert(tree, type=self._kind, str_keys=True)
        return value.value if self._wrap else value

    def tool(self) -> Tool:
        """The tool that takes the value."""

        def validate(arguments: dict[str, Any]) -> dict[str, Any]:
            try:
                self._convert(arguments)
            except msgspec.ValidationError as error:
                raise UsageError(f"{error}.", code="invalid_arguments") from None
            return arguments

        async def accept(arguments: dict[str, Any], _context: ToolContext) -> str | ToolOutput:
            if self.done:
                message = "The answer was given already."
                return ToolOutput(error=ErrorInfo(code="already_answered", message=message))
            self._take(arguments)
            return "The answer was taken."

        return Tool(
            name=FINAL_TOOL,
            description="Give the final answer. Call this once, when the work is done.",
            parameters=self.schema,
            validate=validate,
            execute=accept,
        )

    def failure(self, reason: str | None = None) -> ProviderError:
        """The run's error when the model did not get it right.

        Args:
            reason: Why it was not even asked again.
        """
        if reason is not None:
            return ProviderError(
                f"The model gave no valid answer: {reason}.", code="invalid_output"
            )
        return ProviderError(
            f"The model gave no valid answer in {self.tries} tries; the last one: {self.error}.",
            code="invalid_output",
            details={"limit": MAX_OUTPUT_TRIES},
        )

    def request(self) -> str:
        """What the model is told after an answer that was not valid."""
        how = f"Call {FINAL_TOOL}" if self.mode == "tool" else "Answer with the JSON alone"
        return f"Your answer is not valid: {self.error}. {how}, according to the schema."


def check_output(_name: str, kind: object) -> None:
    """Refuse a type that no answer can have.

    Raises:
        UsageError: it has no JSON Schema.
    """
    Output(kind)


def type_schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type, with its own part at the top.

    Raises:
        TypeError: Something in it has none.
    """
    # The decoder refuses types that cannot be told apart, the schema those that have none.
    msgspec.json.Decoder(kind)
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    reference: object = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix("#/$defs/")
        schema = components[name]
        if reference.encode() not in msgspec.json.encode(components):
            del components[name]
    return {**schema, "$defs": components} if components else dict(schema)


def _closed(part: Any) -> Any:
    """The schema, with no more properties than it names: what else comes would be dropped."""
    if isinstance(part, list):
        return [_closed(item) for item in cast("list[object]", part)]
    if not isinstance(part, dict):
        return part
    fields = cast("dict[str, object]", part)
    closed = {key: _closed(value) for key, value in fields.items()}
    if fields.get("type") == "object" and isinstance(fields.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


def _has_open_object(part: object) -> bool:
    if isinstance(part, list):
        return any(_has_open_object(item) for item in cast("list[object]", part))
    if not isinstance(part, dict):
        return False
    fields = cast("dict[str, object]", part)
    if fields.get("type") == "object" and fields.get("additionalProperties") is not False:
        return True
    return any(_has_open_object(value) for value in fields.values())


def _unfenced(text: str) -> str:
    """Without the code fence that chat models like to put around JSON."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```"):
        inner = stripped[3:-3]
        first, _, rest = inner.partition("\n")
        return rest if not first.strip() or first.strip().isalpha() else inner
    return stripped

"""A run's answer as a value of a type."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from prism.core._contracts import Tool, ToolContext
from prism.core._errors import DecodeError, ProviderError, UsageError
from prism.core._wire import parse_json

FINAL_TOOL: Final = "final_answer"
"""The tool through which a model answers whose provider has no schema mode."""

MAX_OUTPUT_TRIES: Final = 3
"""Answers that may fail their validation before the run does."""

_WRAPPED: Final = "value"


class Output:
    """What a run's answer has to be, and whether it came.

    With a provider that can be held to a schema (`supports_output_schema`), the answer's text is
    the value's JSON. With any other the model gets the tool `final_answer`.

    Args:
        kind: Any type that msgspec can decode.
        mode: `schema` or `tool`.

    Attributes:
        done: Whether a valid value came.
        value: It.
        tries: Answers so far that were not valid.
        error: What was wrong with the last one.
    """

    __slots__ = ("_kind", "_wrap", "done", "error", "mode", "schema", "tries", "value")

    def __init__(self, kind: Any, *, mode: Literal["schema", "tool"]) -> None:
        try:
            schema = type_schema(kind)
        except TypeError as error:
            raise UsageError(f"output={kind!r} cannot become a JSON Schema: {error}.") from None
        self._kind = kind
        # Vendors and tools take objects alone.
        self._wrap = schema.get("type") != "object"
        if self._wrap:
            defs = schema.pop("$defs", None)
            schema = {
                "type": "object",
                "properties": {_WRAPPED: schema},
                "required": [_WRAPPED],
                "additionalProperties": False,
            }
            if defs is not None:
                schema["$defs"] = defs
        self.schema = schema
        self.mode = mode
        self.done = False
        self.value: Any = None
        self.tries = 0
        self.error: str | None = None

    def take(self, tree: Any) -> str | None:
        """Validate a value from the model; what is wrong with it, or `None`."""
        try:
            self.value = self._convert(tree)
        except (msgspec.ValidationError, KeyError) as error:
            self.tries += 1
            self.error = str(error)
            return self.error
        self.done = True
        return None

    def _convert(self, tree: Any) -> Any:
        if not self._wrap:
            return msgspec.convert(tree, type=self._kind)
        return msgspec.convert(tree, type=dict[str, self._kind])[_WRAPPED]

    def take_text(self, text: str) -> str | None:
        """Validate an answer's text; what is wrong with it, or `None`."""
        try:
            tree = parse_json(_unfenced(text))
        except DecodeError as error:
            self.tries += 1
            self.error = error.message
            return error.message
        return self.take(tree)

    def tool(self) -> Tool:
        """The tool that takes the value."""

        def validate(arguments: dict[str, Any]) -> dict[str, Any]:
            problem = self.take(arguments)
            if problem is not None:
                raise UsageError(f"The answer is not valid: {problem}.", code="invalid_arguments")
            return arguments

        async def accept(arguments: dict[str, Any], context: ToolContext) -> str:
            return "The answer was taken."

        return Tool(
            name=FINAL_TOOL,
            description="Give the final answer. Call this once, when the work is done.",
            parameters=self.schema,
            validate=validate,
            execute=accept,
        )

    def failure(self) -> ProviderError:
        """The run's error when the model did not get it right."""
        return ProviderError(
            f"The model gave no valid answer in {self.tries} tries; the last one: {self.error}.",
            code="invalid_output",
            details={"limit": MAX_OUTPUT_TRIES},
        )

    def request(self) -> str:
        """What the model is told after an answer that was not valid."""
        how = f"Call {FINAL_TOOL}" if self.mode == "tool" else "Answer with the JSON alone"
        return f"Your answer is not valid: {self.error}. {how}, according to the schema."


def type_schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type, with its own part at the top.

    Raises:
        TypeError: Something in it has none.
    """
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    reference: object = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix("#/$defs/")
        schema = components[name]
        if reference.encode() not in msgspec.json.encode(components):
            del components[name]
    return {**schema, "$defs": components} if components else dict(schema)


def _unfenced(text: str) -> str:
    """Without the code fence that chat models like to put around JSON."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```"):
        inner = stripped[3:-3]
        first, _, rest = inner.partition("\n")
        return rest if first.strip().isalpha() else inner
    return stripped

"""From a function's signature to a JSON Schema, a check of arguments and a way to call it."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from prism.core._contracts import ToolContext
from prism.core._errors import EncodeError, UsageError
from prism.core._wire import encode, to_plain
from prism.core.tools._docstring import parameter_descriptions

_ABSENT: Final = object()


class Signature:
    """What a tool needs to know of its function.

    Args:
        function: Sync or async.
        name: The tool's name, for error messages.
        caller: Where the decorator stands; local classes in string annotations are found there.

    Attributes:
        schema: JSON Schema of the arguments.

    Raises:
        UsageError: `invalid_signature`.
    """

    __slots__ = ("_context", "_defaults", "_fields", "_positional", "_struct", "schema")

    def __init__(
        self, function: Callable[..., Any], name: str, *, caller: FrameType | None
    ) -> None:
        self._context: str | None = None
        self._defaults: dict[str, Any] = {}
        parameters = _parameters(function, name)
        annotations = _annotations(function, parameters, name, caller)
        fields: list[tuple[str, Any, Any]] = []
        renamed: dict[str, str] = {}
        for parameter in parameters:
            annotation = annotations[parameter.name]
            if _is_context(annotation):
                if self._context is not None:
                    raise _wrong(name, "has two parameters that are a ToolContext")
                self._context = parameter.name
                continue
            # Numbered, because a parameter may have a name that a struct keeps for itself.
            field = f"p{len(fields)}"
            renamed[field] = parameter.name
            if parameter.default is parameter.empty:
                fields.append((field, annotation, msgspec.field()))
            else:
                self._defaults[parameter.name] = parameter.default
                fields.append((field, annotation, msgspec.field(default_factory=_absent)))
        self._fields = tuple(renamed.items())
        self._positional = [
            parameter.name
            for parameter in parameters
            if parameter.kind is parameter.POSITIONAL_ONLY
        ]
        self._struct = msgspec.defstruct(
            "Arguments",
            fields,
            kw_only=True,
            frozen=True,
            forbid_unknown_fields=True,
            rename=renamed,
            module=getattr(function, "__module__", None),
        )
        self.schema = self._make_schema(function, name)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments from JSON as the function's own types, without those that are absent.

        Raises:
            UsageError: `invalid_arguments`, with the JSON path.
        """
        try:
            checked = msgspec.convert(arguments, self._struct, str_keys=True)
        except msgspec.ValidationError as error:
            raise UsageError(f"{error}.", code="invalid_arguments") from None
        return {
            name: value
            for field, name in self._fields
            if (value := getattr(checked, field)) is not _ABSENT
        }

    def bind(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> tuple[list[Any], Mapping[str, Any]]:
        """Positional and keyword arguments of a call with checked *arguments*."""
        if self._context is None and not self._positional:
            return [], arguments
        keywords = dict(arguments)
        if self._context is not None:
            keywords[self._context] = context
        positional = [
            keywords.pop(name) if name in keywords else self._defaults[name]
            for name in self._positional
        ]
        return positional, keywords

    def _make_schema(self, function: Callable[..., Any], name: str) -> dict[str, Any]:
        try:
            # The decoder refuses types that cannot be told apart, the schema those that have none.
            msgspec.json.Decoder(self._struct)
            (reference,), components = msgspec.json.schema_components(
                [self._struct], ref_template="#/$defs/{name}"
            )
        except (TypeError, NameError, ValueError) as error:
            reason = f"has a parameter that JSON Schema cannot describe: {error}"
            raise _wrong(name, " ".join(reason.split())) from error
        own_name = cast("str", reference["$ref"]).removeprefix("#/$defs/")
        schema: dict[str, Any] = components.pop(own_name)
        del schema["title"]
        described = parameter_descriptions(function)
        for parameter, part in schema["properties"].items():
            if parameter in self._defaults:
                _add_default(part, self._defaults[parameter])
            if parameter in described:
                part.setdefault("description", described[parameter])
        if components:
            schema["$defs"] = components
        return schema


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function whose annotations and docstring count: below partials, or a `__call__`."""
    while True:
        if isinstance(function, partial):
            function = function.func
        elif (wrapped := getattr(function, "__wrapped__", None)) is not None:
            function = wrapped
        elif inspect.isroutine(function):
            return function
        else:
            function = type(function).__call__


def _absent() -> object:
    return _ABSENT


def _wrong(name: str, reason: str) -> UsageError:
    return UsageError(f"The function of tool {name!r} {reason}.", code="invalid_signature")


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise _wrong(name, "has no signature that Python can read; use Tool instead") from error
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise _wrong(name, f"takes *{parameter.name}; take a list instead")
        if parameter.kind is parameter.VAR_KEYWORD:
            raise _wrong(name, f"takes **{parameter.name}; take a dict instead")
        if parameter.annotation is parameter.empty:
            hint = (
                "decorate the bound method, as in tool(instance.method)"
                if parameter.name in {"self", "cls"}
                else "annotate it, with Any if it may be everything"
            )
            raise _wrong(name, f"has the parameter {parameter.name!r} without a type; {hint}")
    return parameters


def _annotations(
    function: Callable[..., Any],
    parameters: list[inspect.Parameter],
    name: str,
    caller: FrameType | None,
) -> dict[str, Any]:
    """The parameters' types, with strings resolved; the return type is nobody's business."""
    inner = unwrapped(function)
    module: dict[str, Any] = getattr(inner, "__globals__", {})
    local: Mapping[str, Any] = {}
    if caller is not None and caller.f_globals is module and "<locals>" in inner.__qualname__:
        local = caller.f_locals

    def holder() -> None: ...

    holder.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    try:
        return get_type_hints(
            holder,
            # Type checkers like this import where only they see it; its name is ours.
            globalns={"ToolContext": ToolContext, **module},
            localns=dict(local),
            include_extras=True,
        )
    except NameError as error:
        raise _wrong(
            name, f"has an annotation that cannot be resolved: {error}; define it at module level"
        ) from error
    except (TypeError, SyntaxError, AttributeError) as error:
        raise _wrong(name, f"has an annotation that is no type: {error}") from error


def _is_context(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated or origin is Union or origin is types.UnionType:
        arguments = get_args(annotation)
        return any(
            _is_context(part) for part in (arguments[:1] if origin is Annotated else arguments)
        )
    return isinstance(annotation, type) and issubclass(annotation, ToolContext)


def _add_default(schema: dict[str, Any], default: object) -> None:
    try:
        plain = to_plain(default)
        encode(plain)
    except (EncodeError, TypeError):
        return  # known to the function alone, such as a sentinel
    schema["default"] = plain

from __future__ import annotations

import datetime
import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest

from prism.core._errors import UsageError
from prism.core._wire import TextBlock, ToolCallBlock
from prism.core.tools import Tool, ToolContext, dispatch_tool_call, tool, validate_arguments

if TYPE_CHECKING:
    from decimal import Decimal as Nothing


def call(name: str, /, **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(id="c1", name=name, arguments=arguments)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    """A place on the map."""

    x: int
    y: int = 0


class Options(TypedDict):
    depth: int
    label: NotRequired[str]


class Area(msgspec.Struct):
    corner: Point
    inner: Area | None = None


async def test_a_function_becomes_a_tool_and_stays_a_function() -> None:
    @tool
    async def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    assert isinstance(add, Tool)
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert add.parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    assert await add(2, b=3) == 5
    assert (await dispatch_tool_call(call("add", a=2, b=3), [add])).value == 5


def test_options_are_taken_over() -> None:
    @tool(
        name="list-files",
        description="Ours.",
        sequential=True,
        timeout_ms=5,
        max_result_bytes=99,
    )
    def files() -> list[str]:
        """Not this."""
        return []

    assert (files.name, files.description) == ("list-files", "Ours.")
    assert (files.sequential, files.timeout_ms, files.max_result_bytes) == (True, 5, 99)


def test_the_docstring_describes_the_tool_and_its_parameters() -> None:
    @tool
    def search(
        query: str, limit: int = 10, place: Annotated[str, msgspec.Meta(description="Meta.")] = ""
    ) -> None:
        """Search the notes.

        Use short words.

        Args:
            query: What to look for: words,
                or a phrase.
            limit (int): How many at most.
            place: Not this, the Meta.
            other: Nobody.

        Returns:
            limit: nothing.
        """

    assert search.description == "Search the notes.\n\nUse short words."
    assert search.parameters["properties"] == {
        "query": {"type": "string", "description": "What to look for: words, or a phrase."},
        "limit": {"type": "integer", "default": 10, "description": "How many at most."},
        "place": {"type": "string", "default": "", "description": "Meta."},
    }
    assert search.parameters["required"] == ["query"]


async def test_arguments_arrive_as_real_types() -> None:
    seen: dict[str, Any] = {}

    @tool
    async def take(
        point: Point,
        area: Area,
        options: Options,
        color: Color,
        mode: Literal["fast", "slow"],
        when: datetime.date,
        blob: bytes,
        counts: dict[int, float],
        either: int | list[str] | None,
        small: Annotated[int, msgspec.Meta(ge=0, lt=10)],
        anything: Any,
    ) -> None:
        seen.update(locals())

    schema = take.parameters
    assert schema["properties"]["point"] == {"$ref": "#/$defs/Point"}
    assert set(schema["$defs"]) == {"Point", "Area", "Options", "Color"}
    assert "#/$defs/Area" in str(schema["$defs"]["Area"])
    result = await dispatch_tool_call(
        call(
            "take",
            point={"x": 1},
            area={"corner": {"x": 1, "y": 2}, "inner": {"corner": {"x": 3}}},
            options={"depth": 2},
            color="blue",
            mode="slow",
            when="2024-02-29",
            blob="aGk=",
            counts={"7": 1},
            either=["a"],
            small=9,
            anything={"deep": [None]},
        ),
        [take],
    )
    assert result.error is None
    del seen["seen"]
    assert seen == {
        "point": Point(1),
        "area": Area(Point(1, 2), Area(Point(3))),
        "options": {"depth": 2},
        "color": Color.BLUE,
        "mode": "slow",
        "when": datetime.date(2024, 2, 29),
        "blob": b"hi",
        "counts": {7: 1.0},
        "either": ["a"],
        "small": 9,
        "anything": {"deep": [None]},
    }


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"a": "1"}, "Expected `int`, got `str` - at `$.a`"),
        ({"a": True}, "Expected `int`, got `bool` - at `$.a`"),
        ({"a": 1.5}, "Expected `int`, got `float` - at `$.a`"),
        ({"a": None}, "Expected `int`, got `null` - at `$.a`"),
        ({}, "Object missing required field `a`"),
        ({"a": 1, "z": 1}, "Object contains unknown field `z`"),
        ({"a": 1, "points": [{"x": 1}, {"x": "2"}]}, "at `$.points[1].x`"),
    ],
)
def test_wrong_arguments_are_refused_with_their_path(
    arguments: dict[str, Any], reason: str
) -> None:
    @tool
    def take(a: int, points: list[Point] | None = None) -> None: ...

    with pytest.raises(UsageError, match="Invalid arguments for tool 'take'") as caught:
        validate_arguments(take, call("take", **arguments))
    assert reason in caught.value.message
    assert caught.value.code == "invalid_arguments"


async def test_absent_arguments_leave_the_functions_own_defaults() -> None:
    sentinel = object()
    shared: list[int] = [1]

    @tool
    async def take(
        a: Any = sentinel, b: list[int] = shared, c: int | None = None, d: Color = Color.RED
    ) -> bool:
        return a is sentinel and b is shared and c is None and d is Color.RED

    assert (await dispatch_tool_call(call("take"), [take])).value is True
    properties = take.parameters["properties"]
    assert "default" not in properties["a"]
    assert properties["b"]["default"] == [1]
    assert properties["c"]["default"] is None
    assert properties["d"]["default"] == "red"
    assert take.parameters["required"] == []


async def test_a_tool_context_is_given_and_not_shown_to_the_model() -> None:
    @tool
    async def whoami(context: ToolContext, a: int = 0) -> str:
        return f"{context.tool_call_id} {context.metadata['user']}"

    @tool
    async def optional(a: int, *, ctx: ToolContext | None = None) -> str:
        return ctx.tool_call_id if ctx else "none"

    # A module that imports ToolContext for type checkers alone does not have the name.
    names: dict[str, Any] = {}
    source = "def unseen(context: 'ToolContext') -> str: return context.tool_call_id"
    exec(source, names)  # noqa: S102
    unseen = tool(names["unseen"])

    context = ToolContext(metadata={"user": "me"})
    tools = [whoami, optional, unseen]
    assert [list(one.parameters["properties"]) for one in tools] == [["a"], ["a"], []]
    for one, text in (
        (call("whoami"), "c1 me"),
        (call("optional", a=1), "c1"),
        (call("unseen"), "c1"),
    ):
        result = await dispatch_tool_call(one, tools, context=context)
        assert result.content == [TextBlock(text=text)]


async def test_positional_only_parameters_are_passed_by_position() -> None:
    @tool
    async def take(
        a: int, context: ToolContext, b: int = 2, c: int = 3, /, d: int = 4
    ) -> list[Any]:
        return [a, context.tool_call_id, b, c, d]

    assert (await dispatch_tool_call(call("take", a=1, c=9), [take])).value == [1, "c1", 2, 9, 4]


async def test_a_parameter_may_have_any_name() -> None:
    @tool
    async def take(__struct_fields__: int, copy: int, self_: int, p0: int, name: str) -> int:
        return __struct_fields__ + copy + self_ + p0

    arguments = {"__struct_fields__": 1, "copy": 2, "self_": 3, "p0": 4, "name": "x"}
    assert (await dispatch_tool_call(call("take", **arguments), [take])).value == 10


async def test_bound_methods_partials_callables_and_wrapped_functions_become_tools() -> None:
    class Store:
        def __init__(self) -> None:
            self.items = [1, 2]

        async def read(self, index: int) -> int:
            """Read one."""
            return self.items[index]

        async def __call__(self, index: int) -> int:
            """Call it."""
            return self.items[index]

    def passing(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @tool
    @passing
    async def wrapped(index: int) -> int:
        """Wrap it."""
        return index

    @tool
    @functools.cache
    def cached(index: int) -> int:
        """Cache it."""
        return index

    store = Store()
    tools = [
        tool(store.read),
        tool(functools.partial(store.read), name="part"),
        tool(store, name="store"),
        wrapped,
        cached,
    ]
    described = ["Read one.", "Read one.", "Call it.", "Wrap it.", "Cache it."]
    assert [one.description for one in tools] == described
    for one in tools:
        assert list(one.parameters["properties"]) == ["index"]
        assert (await dispatch_tool_call(call(one.name, index=1), tools)).value in {1, 2}


def test_string_annotations_find_local_classes() -> None:
    @dataclass
    class Local:
        x: Literal[1]

    @tool
    def take(one: Local, many: list[Local]) -> Nothing: ...

    @tool(name="other")
    def also(one: Local) -> None: ...

    assert take.parameters["properties"]["one"] == {"$ref": "#/$defs/Local"}
    assert also.parameters["properties"]["one"] == {"$ref": "#/$defs/Local"}
    checked = validate_arguments(take, call("take", one={"x": 1}, many=[]))
    assert checked == {"one": Local(1), "many": []}


class Unknown:
    pass


@dataclass
class Other:
    x: int


def no_type(a): ...  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
def with_self(self): ...  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
def stars(*a: int) -> None: ...
def double_stars(**a: int) -> None: ...
def unresolved(a: Nothing) -> None: ...
def custom(a: Unknown) -> None: ...
def ambiguous(a: Point | Other) -> None: ...
def two_contexts(a: ToolContext, b: ToolContext) -> None: ...


no_expression = eval("lambda a: None")  # noqa: S307
no_expression.__name__ = "no_expression"
no_expression.__annotations__ = {"a": "1 +"}


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


REFUSED: list[tuple[Any, str]] = [
    (no_type, "'a' without a type; annotate it"),
    (with_self, r"tool\(instance.method\)"),
    (stars, r"takes \*a; take a list"),
    (double_stars, r"takes \*\*a; take a dict"),
    (unresolved, "'Nothing' is not defined"),
    (custom, "cannot describe: .*Unknown"),
    (ambiguous, "cannot describe: .*more than one dataclass"),
    (two_contexts, "two parameters that are a ToolContext"),
    (no_expression, "no type"),
    (generator, "generator"),
    (async_generator, "generator"),
    (print, r"takes \*args"),
    (dict.fromkeys, "no signature|without a type"),
    (tool(lambda: None, name="x"), "a tool already"),
    (Point, "made from a function"),
    ("text", "made from a function"),
    (lambda: None, "<lambda>"),
]


@pytest.mark.parametrize(("function", "reason"), REFUSED)
def test_what_cannot_become_a_tool_is_refused_with_the_reason(function: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        tool(function)

import sys

import pytest

from prism.core._errors import RegistryError, UsageError
from prism.core.tools import Tool, ToolRegistry, filter_tools, tool


def make(name: str) -> Tool:
    return Tool(name=name, execute=lambda arguments, context: None)


@tool(name="read")
def read_file(path: str) -> str:
    return path


def test_a_registry_gives_its_tools_in_the_order_of_registration() -> None:
    registry = ToolRegistry([make("b"), read_file])
    registry.register(make("a"), source="me")
    assert [one.name for one in registry] == ["b", "read", "a"]
    assert registry.list() == tuple(registry)
    assert len(registry) == 3
    assert "read" in registry
    assert registry.get("read") is registry.resolve("read") is read_file
    assert registry.source("a") == "me"
    assert registry.get("c") is None


def test_a_taken_name_is_refused_naming_both_sources() -> None:
    registry = ToolRegistry([read_file])
    with pytest.raises(RegistryError) as caught:
        registry.register(make("read"), source="the plugin")
    assert caught.value.code == "duplicate_name"
    assert "read_file and one from the plugin" in caught.value.message
    assert registry.get("read") is read_file


def test_a_name_is_free_again_after_unregistering() -> None:
    registry = ToolRegistry([read_file])
    assert registry.unregister("read") is read_file
    registry.register(make("read"))
    assert len(registry) == 1


def test_an_unknown_name_is_refused_listing_the_known() -> None:
    registry = ToolRegistry([make(f"t{number}") for number in range(60)])
    for ask in (registry.resolve, registry.unregister, registry.source):
        with pytest.raises(RegistryError, match=r"'x'.*t0, t1, .*t49 and 10 more\.") as caught:
            ask("x")
        assert caught.value.code == "unknown_name"
    with pytest.raises(RegistryError, match="There are no tools"):
        ToolRegistry().resolve("x")


TOOLS = [make(name) for name in ("fs_read", "fs_write", "shell", "web")]


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        (None, None, ["fs_read", "fs_write", "shell", "web"]),
        ([], None, []),
        (["web", "fs_*"], None, ["fs_read", "fs_write", "web"]),
        (["fs_*"], ["*_write"], ["fs_read"]),
        (None, ["shell", "not_there"], ["fs_read", "fs_write", "web"]),
        (["mcp_*"], None, []),
        (["fs_[rx]*", "w?b"], None, ["fs_read", "web"]),
    ],
)
def test_names_and_globs_choose_tools_in_their_order(
    allow: list[str] | None, deny: list[str] | None, expected: list[str]
) -> None:
    assert [one.name for one in filter_tools(TOOLS, allow=allow, deny=deny)] == expected


def test_an_allowed_name_that_no_tool_has_is_refused() -> None:
    with pytest.raises(RegistryError, match=r"'reed'.*fs_read, fs_write, shell, web"):
        filter_tools(ToolRegistry(TOOLS), allow=["web", "reed"])


def test_one_string_is_not_taken_for_a_list_of_letters() -> None:
    with pytest.raises(UsageError, match=r"'deny' is a list.*\['web'\]"):
        filter_tools(TOOLS, deny="web")


def test_a_tool_that_is_registered_twice_is_told_in_one_place() -> None:
    with pytest.raises(RegistryError) as caught:
        ToolRegistry([read_file, read_file])
    assert caught.value.message.count("read_file") == 1
    assert "both from" in caught.value.message


def test_a_wrong_schema_is_refused_when_its_tool_is_registered() -> None:
    wrong = Tool(
        name="broken",
        execute=lambda arguments, context: None,
        parameters={"type": "object", "properties": {"a": {"type": "text"}}},
    )
    with pytest.raises(UsageError, match="'broken'") as caught:
        ToolRegistry([wrong])
    assert caught.value.code == "invalid_schema"


def test_a_schema_that_nothing_can_check_is_refused_when_its_tool_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    parameters = {"type": "object", "properties": {"rare": {"const": "a schema of its own"}}}
    checked = Tool(name="t", execute=lambda arguments, context: None, parameters=parameters)
    with pytest.raises(UsageError, match=r"'t'.*prism-core\[schema\]") as caught:
        ToolRegistry([checked])
    assert caught.value.code == "missing_extra"
    own = Tool(
        name="t",
        execute=lambda arguments, context: None,
        parameters=parameters,
        validate=lambda arguments: arguments,
    )
    assert len(ToolRegistry([own, make("plain")])) == 2


def test_what_a_list_of_names_is_called_elsewhere_stands_in_its_errors() -> None:
    with pytest.raises(RegistryError, match="'tools' names a tool that is not there: 'nope'"):
        filter_tools([read_file], allow=["nope"], argument="tools")

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prism.core._errors import ConfigError, PermissionDenied, UsageError
from prism.core._wire import encode, parse_json
from prism.core.host import (
    CONTRIBUTION_KINDS,
    ChainedSettings,
    Contribution,
    CredentialRequest,
    FileSettings,
    Manifest,
    SettingsProvider,
    StaticSettings,
    StaticTrustPolicy,
    credential_reference,
    default_user_config_path,
    find_literal_secrets,
    load_config_files,
    merge_config_layers,
    parse_config,
    parse_manifest,
    read_config_file,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
layers = st.dictionaries(st.sampled_from("abc"), values)


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# Layers


def test_objects_are_merged_and_everything_else_is_replaced() -> None:
    defaults = {"agent": {"model": "a", "tools": ["x", "y"]}, "retry": True, "store": {"kind": "m"}}
    user = {"agent": {"tools": ["z"], "system": "s"}, "retry": None}
    explicit = {"store": "none", "retry": {"attempts": 2}}
    assert merge_config_layers(defaults, None, user, explicit) == {
        "agent": {"model": "a", "tools": ["z"], "system": "s"},
        "retry": {"attempts": 2},
        "store": "none",
    }


@given(layers, layers, layers)
def test_merging_is_associative_and_has_a_neutral_layer(
    a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]
) -> None:
    in_one = merge_config_layers(a, b, c)
    assert in_one == merge_config_layers(merge_config_layers(a, b), c)
    assert merge_config_layers({}, a, {}) == a


def test_the_merged_configuration_shares_nothing_with_its_layers() -> None:
    layer: dict[str, Any] = {"a": {"b": [{"c": 1}]}}
    merged = merge_config_layers(layer)
    merged["a"]["b"][0]["c"] = 2
    merged["a"]["d"] = 1
    assert layer == {"a": {"b": [{"c": 1}]}}


def test_layers_that_nest_without_end_are_refused() -> None:
    layer: Any = {}
    for level in range(5_000):
        layer = {"a": layer} if level % 2 else {"a": [layer]}
    with pytest.raises(ConfigError) as caught:
        merge_config_layers(layer)
    assert caught.value.code == "too_deep"


# Files


def test_json_and_toml_give_the_same(tmp_path: Path) -> None:
    in_json = written(tmp_path, "a.json", '{"agent": {"model": "m", "n": 1}, "list": [1.5, true]}')
    in_toml = written(tmp_path, "a.TOML", 'list = [1.5, true]\n[agent]\nmodel = "m"\nn = 1\n')
    expected = {"agent": {"model": "m", "n": 1}, "list": [1.5, True]}
    assert read_config_file(in_json) == expected
    assert read_config_file(str(in_toml)) == expected


def test_the_format_can_be_given_and_is_never_guessed(tmp_path: Path) -> None:
    path = written(tmp_path, "settings", "{}")
    assert read_config_file(path, format="json") == {}
    with pytest.raises(ConfigError, match="neither JSON nor TOML") as caught:
        read_config_file(path)
    assert caught.value.code == "unknown_format"


def test_a_byte_order_mark_is_skipped_and_anything_but_utf_8_is_refused(tmp_path: Path) -> None:
    marked = written(tmp_path, "a.json", b"\xef\xbb\xbf{}")
    assert read_config_file(marked) == {}
    latin = written(tmp_path, "b.toml", 'name = "caf\xe9"'.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"b\.toml: not valid UTF-8 at byte 11") as caught:
        read_config_file(latin)
    assert caught.value.code == "parse_error"


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.json", '{"a": 1,\n "b": }', "line 2, column 7"),
        ("a.toml", "a = 1\nb = \n", "line 2"),
        ("b.toml", "a = 1\na = 2\n", "line 2"),
        ("b.json", '{"a": NaN}', "NaN"),
    ],
)
def test_a_file_that_does_not_parse_is_named_with_the_place(
    tmp_path: Path, name: str, content: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=f"(?s){name}.*{text}") as caught:
        read_config_file(written(tmp_path, name, content))
    assert caught.value.code == "parse_error"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", "[1]"),
        ("b.json", '"text"'),
        ("a.toml", "a = nan"),
        ("b.toml", "a = [{ b = inf }]"),
    ],
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, name: str, content: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config_file(written(tmp_path, name, content))
    assert caught.value.code == "invalid_config"


def test_dates_of_toml_become_text(tmp_path: Path) -> None:
    path = written(tmp_path, "a.toml", "day = 2024-05-06\nat = [2024-05-06T07:08:09Z]\n")
    assert read_config_file(path) == {"day": "2024-05-06", "at": ["2024-05-06T07:08:09+00:00"]}


@pytest.mark.parametrize("name", ["a.json", "a.toml"])
def test_a_file_that_nests_without_end_is_refused(tmp_path: Path, name: str) -> None:
    deep = "[" * 20_000 + "]" * 20_000
    content = f'{{"a": {deep}}}' if name.endswith("json") else f"a = {deep}"
    with pytest.raises(ConfigError) as caught:
        read_config_file(written(tmp_path, name, content))
    assert caught.value.code == "too_deep"


def test_a_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a.json", json.dumps({"a": "x" * 100}))
    size = path.stat().st_size
    assert read_config_file(path, max_bytes=size)
    with pytest.raises(ConfigError, match=f"more than {size - 1} bytes") as caught:
        read_config_file(path, max_bytes=size - 1)
    assert caught.value.code == "config_too_large"
    for wrong in (0, True, 10**9):
        with pytest.raises(UsageError, match="max_bytes"):
            read_config_file(path, max_bytes=wrong)


def test_a_path_may_not_leave_its_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    outside = written(tmp_path, "outside.json", "{}")
    inside = written(root / "sub", "a.json", '{"in": 1}')
    (root / "link.json").symlink_to(outside)
    (root / "fine.json").symlink_to(inside)
    for path in (inside, Path("sub/a.json"), Path("sub/../sub/a.json"), root / "fine.json"):
        assert read_config_file(path, root=root) == {"in": 1}
    for path in (outside, Path("../outside.json"), Path("link.json")):
        with pytest.raises(ConfigError, match="leads out of") as caught:
            read_config_file(path, root=root)
        assert caught.value.code == "config_denied"


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop.json").symlink_to("loop.json")
    cases = {
        "pipe.json": "config_denied",
        "folder.json": "config_denied",
        "loop.json": "config_unreadable",
        "none.json": "config_not_found",
        "a\0b.json": "config_unreadable",
    }
    for name, code in cases.items():
        with pytest.raises(ConfigError) as caught:
            read_config_file(tmp_path / name)
        assert caught.value.code == code


def test_a_file_is_read_only_when_its_path_is_trusted(tmp_path: Path) -> None:
    path = written(tmp_path, "a.json", "{}")
    assert read_config_file(path, trust=StaticTrustPolicy([tmp_path])) == {}
    with pytest.raises(PermissionDenied, match="is not trusted"):
        read_config_file(path, trust=StaticTrustPolicy())


def test_several_files_are_merged_in_their_order(tmp_path: Path) -> None:
    user = written(tmp_path, "user.toml", "[agent]\nmodel = 'a'\nrounds = 1\n")
    project = written(tmp_path, "project.json", '{"agent": {"model": "b"}}')
    assert load_config_files([user, project]) == {"agent": {"model": "b", "rounds": 1}}
    assert load_config_files([]) == {}
    none = tmp_path / "none.toml"
    assert load_config_files([none, project], missing="skip") == {"agent": {"model": "b"}}
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load_config_files([none, project])
    with pytest.raises(ConfigError, match="leads out of"):
        load_config_files([project], root=tmp_path / "sub", missing="skip")


def test_the_users_path_is_the_systems_and_nothing_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = default_user_config_path()
    assert path.name == "config.toml"
    assert path.parent.name == "prism"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    with pytest.raises(UsageError, match=r"prism-core\[config\]") as caught:
        default_user_config_path()
    assert caught.value.code == "missing_extra"


# Secrets by reference


@pytest.mark.parametrize(
    "key",
    ["apiKey", "api_key", "API-KEY", "apikey", "password", "clientSecret", "access_token",
     "Authorization", "privateKey"],
)  # fmt: skip
def test_a_secret_that_is_written_out_is_refused_with_its_place(key: str) -> None:
    data = json.dumps({"providers": [{key: "hunter2"}]}).encode()
    with pytest.raises(ConfigError) as caught:
        parse_config(data, format="json", source="a.json")
    assert caught.value.code == "secret_in_config"
    assert caught.value.details is not None
    assert caught.value.details["paths"][0].startswith("$.providers[0]")
    assert "hunter2" not in str(caught.value)
    assert parse_config(data, format="json", secrets="allow")["providers"] == [{key: "hunter2"}]


def test_references_and_other_keys_are_no_secrets() -> None:
    value = {
        "apiKey": {"credential": {"provider": "openai"}},
        "password": "",
        "token": None,
        "apiKeyEnv": "OPENAI_API_KEY",
        "maxTokens": "100",
        "cacheKey": "k",
        "key": "k",
        "tokenizer": "t",
        "?": "x",
    }
    assert find_literal_secrets(value) == []


def test_a_reference_becomes_a_request() -> None:
    assert credential_reference({"credential": {"provider": "p"}}) == CredentialRequest(
        provider="p"
    )
    assert credential_reference(
        {"credential": {"provider": "p", "name": "n", "scope": "s"}}
    ) == CredentialRequest(provider="p", name="n", scope="s")
    for wrong in (
        "text",
        {},
        {"credential": "p"},
        {"credential": {"name": "n"}},
        {"credential": {"provider": 1}},
        {"credential": {"provider": "p", "value": "hunter2"}},
        {"credential": {"provider": "p"}, "more": 1},
    ):
        assert credential_reference(wrong) is None


# Manifests


def test_a_manifest_is_read_and_nothing_that_it_names_is_imported() -> None:
    manifest = parse_manifest(
        {
            "name": "demo",
            "version": "1.2.0",
            "prismApi": 1,
            "description": "A demo.",
            "requires": ["base"],
            "contributions": [
                {
                    "kind": "retryPolicy",
                    "name": "slow",
                    "entryPoint": "demo_not_there.retry:Slow.policy",
                },
                {
                    "kind": "tool",
                    "name": "slow",
                    "entryPoint": "demo_not_there:tool",
                    "description": "d",
                },
            ],
            "settings": {"anything": {"goes": [1]}},
        }
    )
    assert manifest == Manifest(
        name="demo",
        version="1.2.0",
        description="A demo.",
        requires=["base"],
        contributions=[
            Contribution(
                kind="retryPolicy", name="slow", entry_point="demo_not_there.retry:Slow.policy"
            ),
            Contribution(
                kind="tool", name="slow", entry_point="demo_not_there:tool", description="d"
            ),
        ],
        settings={"anything": {"goes": [1]}},
    )
    assert "demo_not_there" not in sys.modules


def test_a_manifest_written_as_json_reads_back_equal() -> None:
    manifest = Manifest(
        name="demo",
        version="1",
        contributions=[
            Contribution(kind=kind, name="n", entry_point="a:b") for kind in CONTRIBUTION_KINDS
        ],
    )
    assert parse_manifest(parse_json(encode(manifest))) == manifest


def test_all_problems_are_told_at_once_with_their_places() -> None:
    value: dict[str, Any] = {
        "version": "one",
        "prismApi": 2,
        "description": 5,
        "requires": ["a", "a", "!"],
        "extra": 1,
        "contributions": [
            {"kind": "thing", "name": "n", "entryPoint": "a.b"},
            "text",
            {"kind": "tool", "name": "t", "entryPoint": "a:b", "extra key": 1},
            {"kind": "tool", "name": "t", "entryPoint": "a:1b", "description": []},
        ],
        "settings": {"apiKey": "hunter2"},
    }
    with pytest.raises(ConfigError) as caught:
        parse_manifest(value, source="demo.json")
    assert caught.value.code == "invalid_manifest"
    assert caught.value.details is not None
    assert sorted(each["path"] for each in caught.value.details["problems"]) == [
        "$.contributions[0].entryPoint",
        "$.contributions[0].kind",
        "$.contributions[1]",
        '$.contributions[2]["extra key"]',
        "$.contributions[3].description",
        "$.contributions[3].entryPoint",
        "$.contributions[3].name",
        "$.description",
        "$.extra",
        "$.name",
        "$.prismApi",
        "$.requires[1]",
        "$.requires[2]",
        "$.settings.apiKey",
        "$.version",
    ]
    message = str(caught.value)
    assert message.startswith("demo.json: ")
    assert "$.contributions[3].name: 't' is taken by $.contributions[2]" in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], r"\$: must be an object"),
        ({1: 2}, r"\$: must be an object"),
        ({"name": "a", "version": "1", "contributions": {}}, r"\$\.contributions: must be a list"),
        ({"name": "a", "version": "1", "settings": []}, r"\$\.settings: must be an object"),
        ({"name": "a", "version": "1", "prismApi": True}, r"\$\.prismApi: must be 1"),
        ({"name": "a", "version": "1", "contributions": [1] * 200}, "and 100 more"),
    ],
)
def test_what_is_no_manifest_is_refused(value: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_manifest(value)


# Settings


def test_settings_are_found_by_key_and_cannot_be_changed_from_outside() -> None:
    given: dict[str, Any] = {"memory": {"limit": 1}}
    settings = StaticSettings(given)
    given["memory"]["limit"] = 2
    settings.get("memory")["limit"] = 3
    assert settings.get("memory") == {"limit": 1}
    assert settings.get("none") is None
    assert isinstance(settings, SettingsProvider)


def test_the_first_settings_that_have_the_key_win() -> None:
    chain = ChainedSettings(
        [
            StaticSettings({"a": None}),
            StaticSettings({"a": False, "b": 1}),
            StaticSettings({"a": 2, "b": 2, "c": 3}),
        ]
    )
    assert [chain.get(key) for key in "abcd"] == [False, 1, 3, None]


def test_settings_of_a_file_may_be_the_whole_or_one_table(tmp_path: Path) -> None:
    path = written(tmp_path, "a.toml", "top = 1\nflat = 2\n[settings.memory]\nlimit = 5\n")
    assert FileSettings(path).get("top") == 1
    assert FileSettings(path, table="settings").get("memory") == {"limit": 5}
    assert FileSettings(path, table="none").get("memory") is None
    with pytest.raises(ConfigError, match="'flat' must be an object"):
        FileSettings(path, table="flat")
    with pytest.raises(ConfigError, match="leads out of"):
        FileSettings(path, root=tmp_path / "sub")

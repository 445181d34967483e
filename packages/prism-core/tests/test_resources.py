from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from prism.core._errors import ConfigError, ResourceError, UsageError
from prism.core.host import (
    DataResourceLoader,
    FileResourceLoader,
    Manifest,
    Resource,
    ResourceLoader,
    ResourceLoaders,
    load_json_resource,
    load_manifest_resource,
    load_resource,
    load_text_resource,
)


class Static:
    """Serves one resource under `mem:`, whatever the limit."""

    def __init__(self, data: bytes, media_type: str | None = None) -> None:
        self._data = data
        self._media_type = media_type

    @property
    def schemes(self) -> frozenset[str]:
        return frozenset({"mem"})

    async def load(self, uri: str, *, max_bytes: int) -> Resource:
        return Resource(uri=uri, data=self._data, media_type=self._media_type)


async def refused(loader: ResourceLoader, uri: str, *, max_bytes: int = 100) -> str | int:
    with pytest.raises(ResourceError) as caught:
        await load_resource(loader, uri, max_bytes=max_bytes)
    return caught.value.code


async def test_a_file_in_a_root_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a b%.md"
    path.write_bytes(b"# Hi")
    loader = FileResourceLoader([tmp_path / "other", tmp_path])
    resource = await load_resource(loader, path.as_uri())
    assert resource == Resource(uri=path.as_uri(), data=b"# Hi", media_type="text/markdown")
    localhost = path.as_uri().replace("file://", "file://localhost")
    assert (await load_resource(loader, localhost)).data == b"# Hi"


async def test_a_relative_file_is_looked_for_in_the_first_root(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a").write_bytes(b"x")
    loader = FileResourceLoader([str(tmp_path)])
    resource = await load_resource(loader, "file:docs/a")
    assert (resource.data, resource.media_type) == (b"x", None)


async def test_a_file_may_not_be_outside_the_roots(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside.txt"
    root.mkdir()
    outside.write_bytes(b"secret")
    (root / "link").symlink_to(outside)
    loader = FileResourceLoader([root])
    for uri in (
        outside.as_uri(),
        f"{root.as_uri()}/../outside.txt",
        f"{root.as_uri()}/%2e%2e/outside.txt",
        "file:../outside.txt",
        "file:link",
    ):
        assert await refused(loader, uri) == "resource_denied"


async def test_every_way_in_which_a_file_cannot_be_loaded_has_its_code(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 101)
    os.mkfifo(tmp_path / "pipe")
    loader = FileResourceLoader([tmp_path])
    assert await refused(loader, "file:none") == "resource_not_found"
    assert await refused(loader, "file:large/below") == "resource_not_found"
    assert await refused(loader, "file:large") == "resource_too_large"
    assert await refused(loader, "file:pipe") == "resource_denied"
    for uri in (
        "file://elsewhere/a",
        "file:",
        "file:a?b",
        "file:a#b",
        "file:a%00b",
        "file://[a",
        "http:a",
    ):
        assert await refused(loader, uri) == "invalid_uri"


async def test_a_file_loader_needs_roots() -> None:
    with pytest.raises(UsageError, match="at least one folder"):
        FileResourceLoader([])
    with pytest.raises(UsageError, match="at least one folder"):
        FileResourceLoader("/")


@pytest.mark.parametrize(
    ("uri", "data", "media_type"),
    [
        ("data:,a%20b%00", b"a b\0", "text/plain;charset=US-ASCII"),
        ("data:text/plain;charset=utf-8,%C3%A9,", "é,".encode(), "text/plain;charset=utf-8"),
        ("data:image/png;base64,AP8=", b"\x00\xff", "image/png"),
        ("DATA:;BASE64,A%50%0A8%3D", b"\x00\xff", "text/plain;charset=US-ASCII"),
        ("data:,", b"", "text/plain;charset=US-ASCII"),
    ],
)
async def test_a_data_uri_holds_its_resource(uri: str, data: bytes, media_type: str) -> None:
    resource = await load_resource(DataResourceLoader(), uri)
    assert resource == Resource(uri=uri, data=data, media_type=media_type)


async def test_a_data_uri_that_is_wrong_or_too_large_is_refused() -> None:
    loader = DataResourceLoader()
    assert await refused(loader, "data:text/plain") == "invalid_uri"
    assert await refused(loader, "mem:,a") == "invalid_uri"
    assert await refused(loader, "data:;base64,A") == "resource_decode"
    assert await refused(loader, "data:;base64,AP8!") == "resource_decode"
    assert await refused(loader, "data:," + "x" * 101) == "resource_too_large"
    assert await refused(loader, "data:," + "x" * 1_000) == "resource_too_large"
    for size, fits in ((100, True), (101, False)):
        uri = "data:;base64," + base64.b64encode(b"x" * size).decode()
        if fits:
            assert len((await load_resource(loader, uri, max_bytes=100)).data) == size
        else:
            assert await refused(loader, uri) == "resource_too_large"
    escaped = "data:," + "%41" * 100
    assert (await load_resource(loader, escaped, max_bytes=100)).data == b"A" * 100


async def test_several_loaders_are_told_apart_by_scheme(tmp_path: Path) -> None:
    loaders = ResourceLoaders([DataResourceLoader(), FileResourceLoader([tmp_path]), Static(b"m")])
    assert isinstance(loaders, ResourceLoader)
    assert loaders.schemes == {"data", "file", "mem"}
    assert (await load_resource(loaders, "MEM:x")).data == b"m"
    assert (await load_resource(loaders, "data:,d")).data == b"d"
    with pytest.raises(ResourceError, match="known schemes: data, file, mem") as caught:
        await load_resource(loaders, "https://host/a")
    assert caught.value.code == "resource_unsupported_scheme"
    assert await refused(loaders, "no scheme") == "invalid_uri"


async def test_two_loaders_of_one_scheme_are_both_named() -> None:
    with pytest.raises(UsageError, match="Static and Static both serve 'mem'"):
        ResourceLoaders([Static(b""), Static(b"")])


async def test_a_loader_that_ignores_the_limit_is_held_to_it() -> None:
    assert await refused(Static(b"x" * 101), "mem:x") == "resource_too_large"
    for wrong in (0, True, 10**9):
        with pytest.raises(UsageError, match="max_bytes"):
            await load_resource(Static(b""), "mem:x", max_bytes=wrong)


async def test_text_is_strict_utf_8_and_a_byte_order_mark_is_skipped() -> None:
    loader = DataResourceLoader()
    assert await load_text_resource(loader, "data:,%EF%BB%BFa%C3%A9") == "aé"
    cases = ("data:,%E9", "data:text/plain;charset=latin-1,a", "data:;charset=utf-16;base64,YQA=")
    for uri in cases:
        with pytest.raises(ResourceError) as caught:
            await load_text_resource(loader, uri)
        assert caught.value.code == "resource_decode"


async def test_json_is_read_and_what_is_none_is_refused() -> None:
    loader = DataResourceLoader()
    assert await load_json_resource(loader, 'data:,{"a":[1]}') == {"a": [1]}
    with pytest.raises(ResourceError, match="Not valid JSON") as caught:
        await load_json_resource(loader, "data:,{")
    assert caught.value.code == "resource_decode"


async def test_a_manifest_is_read_in_json_and_toml(tmp_path: Path) -> None:
    expected = Manifest(name="a", version="1")
    (tmp_path / "a.toml").write_text('name = "a"\nversion = "1"\n', encoding="utf-8")
    (tmp_path / "a.json").write_text('{"name": "a", "version": "1"}', encoding="utf-8")
    loader = FileResourceLoader([tmp_path])
    assert await load_manifest_resource(loader, "file:a.toml") == expected
    assert await load_manifest_resource(loader, "file:a.json") == expected
    toml = Static(b'name = "a"\nversion = "1"', "application/toml")
    assert await load_manifest_resource(toml, "mem:x") == expected
    named = Static(b'name = "a"\nversion = "1"')
    assert await load_manifest_resource(named, "mem:x.toml") == expected


async def test_a_wrong_manifest_names_the_resource_and_every_problem() -> None:
    loader = DataResourceLoader()
    with pytest.raises(ConfigError, match=r"'data:.*\$\.name: is missing; \$\.version") as caught:
        await load_manifest_resource(loader, "data:application/json,{}")
    assert caught.value.code == "invalid_manifest"
    with pytest.raises(ConfigError) as caught:
        await load_manifest_resource(loader, "data:application/json,{")
    assert caught.value.code == "parse_error"


async def test_a_long_uri_is_cut_in_messages() -> None:
    with pytest.raises(ResourceError) as caught:
        await load_text_resource(DataResourceLoader(), "data:,%E9" + "x" * 10_000)
    assert len(str(caught.value)) < 200

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from prism.core import ExtensionError, RegistryError, UsageError
from prism.core.extensions import ExtensionKernel, load_entry_points

EXTENSION = """
from prism.core.extensions import SimpleExtension, extension

@extension({name!r})
def instance(api):
    pass

def factory():
    return SimpleExtension({name!r}, lambda api: None)

class Made:
    name = {name!r}
    requires = ()
    def setup(self, api):
        pass

nothing = 42
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, in which packages can be installed."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    return tmp_path


def install(site: Path, package: str, *entry_points: str, source: str | None = None) -> None:
    module = package.replace("-", "_")
    text = EXTENSION.format(name=package) if source is None else source
    (site / f"{module}.py").write_text(text, encoding="utf-8")
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(
        "\n".join(["[prism.extensions]", *entry_points]), encoding="utf-8"
    )


@pytest.mark.parametrize("attribute", ["instance", "factory", "Made"])
async def test_a_named_extension_is_imported_and_can_be_loaded(site: Path, attribute: str) -> None:
    package = f"zoo-{attribute.lower()}"
    install(site, package, f"zoo = {package.replace('-', '_')}:{attribute}")
    extensions = load_entry_points(["zoo", "zoo"])
    kernel = ExtensionKernel()
    await kernel.load(extensions)
    assert kernel.loaded == (package,)


def test_nothing_else_of_the_group_is_imported(site: Path) -> None:
    install(site, "chosen-one", "chosen = chosen_one:instance")
    install(site, "other-one", "other = other_one:instance", source="raise SystemExit")
    assert [each.name for each in load_entry_points(["chosen"])] == ["chosen-one"]
    assert load_entry_points([]) == []
    assert "other_one" not in sys.modules


def test_an_unknown_name_is_answered_with_the_known_ones_and_imports_nothing(site: Path) -> None:
    install(site, "early-one", "early = early_one:instance")
    with pytest.raises(RegistryError, match=r"'late' in 'prism\.extensions'\. Known: .*early"):
        load_entry_points(["early", "late"])
    assert "early_one" not in sys.modules
    with pytest.raises(RegistryError, match="Known: none"):
        load_entry_points(["early"], group="prism.no_such_group")


def test_a_name_of_two_packages_is_refused_naming_both(site: Path) -> None:
    install(site, "first-one", "both = first_one:instance")
    install(site, "second-one", "both = second_one:instance")
    with pytest.raises(ExtensionError, match=r"'both' .*: first-one, second-one") as caught:
        load_entry_points(["both"])
    assert caught.value.code == "duplicate_name"
    assert "first_one" not in sys.modules


def test_a_failing_import_says_whose_it_is(site: Path) -> None:
    install(site, "broken-one", "broken = broken_one:instance", source="1 / 0")
    with pytest.raises(ExtensionError, match="'broken' of broken-one could not be imported: div"):
        load_entry_points(["broken"])


def test_what_is_no_extension_is_refused(site: Path) -> None:
    install(site, "plain-one", "plain = plain_one:nothing")
    with pytest.raises(ExtensionError, match="plain_one:nothing leads to a int") as caught:
        load_entry_points(["plain"])
    assert caught.value.code == "invalid_extension"


def test_one_string_is_not_taken_for_a_list_of_letters() -> None:
    with pytest.raises(UsageError, match=r"\['zoo'\]"):
        load_entry_points("zoo")

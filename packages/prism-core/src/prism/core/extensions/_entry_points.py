"""Extensions of installed packages, by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from prism.core._contracts import Extension
from prism.core._errors import ExtensionError, RegistryError, UsageError
from prism.core._support.errors import error_info
from prism.core._support.registry import list_names

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP: Final = "prism.extensions"
"""Where installed packages declare their extensions."""


def load_entry_points(names: Iterable[str], *, group: str = ENTRY_POINT_GROUP) -> list[Extension]:
    """Import the named extensions of installed packages; they are not set up.

    An entry point leads to an `Extension`, or to a function or class that makes one without
    arguments. Of the other packages of the group only the metadata is read.

    Args:
        names: Names of entry points; one that comes again counts once.
        group: Where the packages declare them.

    Returns:
        The extensions, in the order of *names*, for `ExtensionKernel.load`.

    Raises:
        RegistryError: `unknown_name`, listing the known ones; nothing was imported then.
        ExtensionError: `duplicate_name` when two packages declare the same name, before anything
            is imported; `extension_failed` when the import fails; `invalid_extension` when what
            it leads to is none.
        UsageError: *names* is one string.
    """
    if isinstance(names, str):
        raise UsageError(f"Extensions are a list of names: [{names!r}], not {names!r}.")
    from importlib.metadata import entry_points

    known = entry_points(group=group)
    chosen: list[EntryPoint] = []
    for name in dict.fromkeys(names):
        found = list(known.select(name=name))
        if not found:
            present = sorted(known.names)
            raise RegistryError(
                f"No installed package declares an extension {name!r} in {group!r}. "
                f"{list_names(present)}",
                details={"name": name, "known": present[:50]},
            )
        if len(found) > 1:
            owners = ", ".join(sorted(_owner(each) for each in found))
            raise ExtensionError(
                f"Several packages declare an extension {name!r} in {group!r}: {owners}. "
                "Uninstall one of them.",
                code="duplicate_name",
                details={"name": name},
            )
        chosen.append(found[0])
    return [_load(each) for each in chosen]


def _load(entry_point: EntryPoint) -> Extension:
    where = f"Extension {entry_point.name!r} of {_owner(entry_point)}"
    try:
        found: Any = entry_point.load()
        if isinstance(found, type) or (callable(found) and not isinstance(found, Extension)):
            found = found()
    except Exception as error:
        raise ExtensionError(
            f"{where} could not be imported: {error_info(error).message}",
            details={"extension": entry_point.name},
        ) from error
    if not isinstance(found, Extension):
        raise ExtensionError(
            f"{where} is no extension: {entry_point.value} leads to a {type(found).__name__}, "
            "which has no name, requires and setup.",
            code="invalid_extension",
            details={"extension": entry_point.name},
        )
    return found


def _owner(entry_point: EntryPoint) -> str:
    distribution = entry_point.dist
    return "an unknown package" if distribution is None else distribution.name

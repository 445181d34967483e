"""Which paths may be read as configuration or code."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from os import PathLike, fspath
from pathlib import Path

from prism.core._contracts import TrustPolicy
from prism.core._errors import PermissionDenied


class StaticTrustPolicy:
    """Trusts what lies in some folders, and some sources by name.

    Args:
        roots: Folders whose contents are trusted. Symbolic links, in them and in what is asked
            about, are followed first, each time, so that a link cannot lead out.
        sources: Other subjects, compared as they are.
    """

    __slots__ = ("_roots", "_sources")

    def __init__(
        self, roots: Iterable[str | PathLike[str]] = (), *, sources: Iterable[str] = ()
    ) -> None:
        self._roots = tuple(fspath(root) for root in roots)
        self._sources = frozenset(sources)

    def is_trusted(self, subject: str) -> bool:
        """Whether *subject* is one of the sources, or a path in one of the folders."""
        if subject in self._sources:
            return True
        if not subject:
            return False
        try:
            path = Path(subject).resolve()
            with suppress(FileNotFoundError, NotADirectoryError):
                path.stat()  # Python 3.13 resolves a loop of links without a word
            return any(path.is_relative_to(Path(root).resolve()) for root in self._roots)
        except (OSError, ValueError, RuntimeError):  # a loop of links, or a NUL in the name
            return False


def assert_trusted(policy: TrustPolicy | None, subject: str | PathLike[str]) -> None:
    """Return only when *policy* trusts *subject*; without a policy nothing is trusted.

    Raises:
        PermissionDenied: `not_trusted`.
    """
    name = fspath(subject)
    if policy is None or not policy.is_trusted(name):
        raise PermissionDenied(
            f"{name!r} is not trusted; add its folder to the trust policy if it should be.",
            code="not_trusted",
            details={"subject": name},
        )

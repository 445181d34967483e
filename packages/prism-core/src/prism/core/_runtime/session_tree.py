"""A session's tree: reading it, moving in it, adding to it, copying it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from prism.core._errors import UsageError
from prism.core._runtime.apart import run_apart
from prism.core._runtime.checks import is_record
from prism.core._runtime.session_base import SessionBase
from prism.core._runtime.tree import TreeNode, copy_all, copy_path
from prism.core._support.branch import Branch, labelled_leaf, list_branches
from prism.core._wire import (
    CustomEntry,
    LabelEntry,
    SessionEntry,
    encode,
    has_non_finite,
    to_plain,
)

if TYPE_CHECKING:
    from prism.core._runtime.session import Session


class SessionTree(SessionBase):
    """The part of a session that is its entries."""

    async def entries(self) -> list[SessionEntry]:
        """The branch on which the session stands, from the root to the leaf."""
        await self.log.ensure_loaded()
        return list(self.log.history.path)

    async def branches(self) -> list[Branch]:
        """All branches of the session."""
        return list_branches(await self.log.all_entries())

    async def tree(self) -> list[TreeNode]:
        """Every entry's place, in append order; for showing the session's shape."""
        return TreeNode.list_of(await self.log.all_entries())

    async def reload(self) -> None:
        """Read the session again, to go on after another writer.

        Raises:
            SessionBusy: A run or a compaction is active.
            UsageError: `session_closed`.
        """
        self.check_idle()
        await self.log.reload(only_if=self.check_idle)

    async def checkout(self, leaf_id: str | None) -> None:
        """Stand at another entry; `None` is the empty root. It holds after reopening too.

        Raises:
            SessionBusy: A run or a compaction is active.
            UsageError: `entry_not_found` or `session_closed`.
            StoreConflict: Another writer came first.
        """
        self.check_idle()
        await self.log.ensure_loaded()
        await run_apart(lambda: self.log.checkout(leaf_id, only_if=self.check_idle))

    async def label(self, label: str | None, *, target_id: str | None = None) -> LabelEntry:
        """Name an entry; `None` takes the name away. Also during a run.

        Args:
            label: A text; empty: none.
            target_id: Default: the leaf, or the entry that it labels when it is a label.

        Raises:
            UsageError: `entry_not_found` or `session_closed`.
            StoreConflict: Another writer came first.
        """
        self.check_open()
        if label is not None and not isinstance(label, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"A label must be a string or None, not {type(label).__name__}.")
        await self.log.ensure_loaded()
        target = labelled_leaf(self.log.history.path) if target_id is None else target_id
        if target is None or not await self.log.has(target):
            raise UsageError(
                f"Session {self.id!r} has no entry {target!r} to label.", code="entry_not_found"
            )
        fields: dict[str, Any] = {"data": {"targetId": target}}
        if label:
            fields["label"] = self.redactor.redact_text(label)
        (entry,) = await run_apart(lambda: self.log.append([(LabelEntry, fields)]))
        assert isinstance(entry, LabelEntry)  # noqa: S101
        return entry

    async def append_custom(
        self, data: dict[str, Any], *, require_on_path: Sequence[str] = ()
    ) -> CustomEntry:
        """Append a record of the host's own under the leaf, also during a run.

        Args:
            data: `{"type": …}` and any JSON; never sent to the model.
            require_on_path: Entry ids that must still be on the path.

        Raises:
            LeafMoved: One of them has left it.
            UsageError: `data` has no `type`, or holds NaN or Infinity; `session_closed`.
            EncodeError: `data` is no JSON.
            StoreConflict: Another writer came first.
        """
        self.check_open()
        if not is_record(data):
            raise UsageError("A custom entry's data needs a `type`, a string.")
        if has_non_finite(data):
            raise UsageError("A custom entry's data holds NaN or Infinity.", code="invalid_value")
        plain: dict[str, Any] = to_plain(data)
        encode(plain)
        plain = self.redactor.redact_value(plain)
        await self.log.ensure_loaded()
        (entry,) = await run_apart(
            lambda: self.log.append(
                [(CustomEntry, {"data": plain})], require_on_path=require_on_path
            )
        )
        assert isinstance(entry, CustomEntry)  # noqa: S101
        return entry

    async def fork(self, leaf_id: str | None = None, *, id: str | None = None) -> Session:  # noqa: A002
        """A new session that holds the path to *leaf_id* (default: the leaf) and its labels.

        Also during a run: it copies what is stored.

        Raises:
            SessionExists: *id* is taken.
            UsageError: `entry_not_found`.
        """
        return await self._copy(copy_path, leaf_id, id)

    async def clone(self, *, id: str | None = None, leaf_id: str | None = None) -> Session:  # noqa: A002
        """A new session that holds every entry, and stands at *leaf_id* (default: the leaf).

        Also during a run: it copies what is stored.

        Raises:
            SessionExists: *id* is taken.
            UsageError: `entry_not_found`.
        """
        return await self._copy(copy_all, leaf_id, id)

    async def _copy(
        self, copy: Callable[..., Awaitable[None]], leaf_id: str | None, new_id: str | None
    ) -> Session:
        await self.log.ensure_loaded()
        agent = self.agent
        target = agent.id_maker("session") if new_id is None else new_id
        made = agent.session(target)  # refuses an id that cannot be
        await copy(
            agent.store,
            self.id,
            target,
            self.log.history.leaf_id if leaf_id is None else leaf_id,
            make_id=agent.id_maker,
            timestamp=self.log.now(),
        )
        return made

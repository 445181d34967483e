"""Every exception that Prism raises.

```text
PrismError                      code, details, status, retry_after_ms
├── UsageError (ValueError)     the caller asked for something that cannot be done
│   ├── SessionBusy             a run or a compaction is active
│   ├── NoActiveRun             there is nothing to steer
│   ├── NothingToCompact        no entry newly leaves the context
│   ├── NothingToContinue       the branch does not end in something to answer
│   ├── SessionNotFound         no session of that id
│   ├── SessionExists           the id is taken
│   ├── LeafMoved               a required entry has left the path
│   └── RegistryError           unknown or duplicate name
├── DecodeError (ValueError)    bytes that are not what they should be
├── EncodeError (ValueError)    a value that JSON cannot hold
├── BranchError                 a session tree that cannot be walked
├── ProviderError               the model's side failed
├── ToolError                   raised by a tool to give its result an error code
├── CompactionError             a strategy failed or broke its contract
├── MiddlewareError             a middleware failed under the policy `throw`
├── StoreError                  the store's side failed
│   └── StoreConflict           somebody else wrote first
├── CredentialError             a credential that was asked for is not there
├── PermissionDenied            a policy said no
├── ConfigError                 a configuration or a manifest is wrong
├── ResourceError               a resource that cannot be loaded
├── ExtensionError              an extension that cannot be loaded
└── RunAborted                  the run was aborted; its bookkeeping is complete
```

The class says who must act, the code says what happened: codes are stable, texts are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class PrismError(Exception):
    """Base of all errors of Prism.

    Args:
        message: What was wrong, where, and what to do.
        code: Stable code; the class has a default.
        details: JSON-safe facts, such as a limit that was exceeded.
        status: HTTP status, when a server gave one.
        retry_after_ms: How long the other side asked to wait.
    """

    default_code: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | int | None = None,
        details: Mapping[str, Any] | None = None,
        status: int | None = None,
        retry_after_ms: int | float | None = None,
    ) -> None:
        super().__init__(message)
        self.message: str = message
        self.code: str | int = self.default_code if code is None else code
        self.details: dict[str, Any] | None = dict(details) if details else None
        self.status: int | None = status
        self.retry_after_ms: int | float | None = retry_after_ms


class UsageError(PrismError, ValueError):
    """The caller asked for something that cannot be done."""

    default_code = "invalid_params"


class SessionBusy(UsageError):  # noqa: N818
    """A run or a compaction is active on the session."""

    default_code = "session_busy"


class NoActiveRun(UsageError):  # noqa: N818
    """Steering needs a run, and none is active."""

    default_code = "no_active_run"


class NothingToCompact(UsageError):  # noqa: N818
    """No entry would newly leave the model's context."""

    default_code = "nothing_to_compact"


class NothingToContinue(UsageError):  # noqa: N818
    """The branch ends in a finished answer, so there is nothing to go on with."""

    default_code = "nothing_to_continue"


class SessionNotFound(UsageError):  # noqa: N818
    """No session of that id is in the store."""

    default_code = "session_not_found"


class SessionExists(UsageError):  # noqa: N818
    """A session of that id is already in the store."""

    default_code = "session_exists"


class LeafMoved(UsageError):  # noqa: N818
    """A required entry is no longer on the path of the current leaf."""

    default_code = "leaf_moved"


class RegistryError(UsageError):
    """A name that is unknown to a registry, or already taken in it."""

    default_code = "unknown_name"


class DecodeError(PrismError, ValueError):
    """Bytes that are not JSON (`parse_error`), too deep (`too_deep`) or of the wrong shape."""

    default_code = "invalid_value"


class EncodeError(PrismError, ValueError):
    """A value that JSON cannot hold, such as NaN."""

    default_code = "invalid_value"


class BranchError(PrismError):
    """A path through a session tree that has a hole (`missing_parent`) or a loop (`cycle`)."""

    default_code = "missing_parent"


class ProviderError(PrismError):
    """The model's side failed; the code is one of the provider codes."""

    default_code = "unknown"


class ToolError(PrismError):
    """Raised inside a tool: its message and code become the error result the model sees."""

    default_code = "tool_error"


class CompactionError(PrismError):
    """A compaction strategy failed, or its result broke the contract."""

    default_code = "compaction_failed"


class MiddlewareError(PrismError):
    """A middleware failed under the policy `throw`."""

    default_code = "middleware_failed"


class StoreError(PrismError):
    """The store could not do what was asked; what it held before is still there."""

    default_code = "store_error"


class StoreConflict(StoreError):  # noqa: N818
    """Another writer came first (`version_conflict`), or an id is taken (`id_conflict`)."""

    default_code = "version_conflict"


class CredentialError(PrismError):
    """A credential that was asked for by name is not there."""

    default_code = "missing_credential"


class PermissionDenied(PrismError):  # noqa: N818
    """A policy refused the action."""

    default_code = "permission_denied"


class ConfigError(PrismError, ValueError):
    """A configuration, a manifest or a setting is wrong."""

    default_code = "invalid_config"


class ResourceError(PrismError):
    """A resource is missing, refused, too large or not readable as what it was asked for."""

    default_code = "resource_not_found"


class ExtensionError(PrismError):
    """An extension cannot be loaded or unloaded."""

    default_code = "extension_failed"


class RunAborted(PrismError):  # noqa: N818
    """The run was aborted. Everything that it had produced is in the store."""

    default_code = "aborted"

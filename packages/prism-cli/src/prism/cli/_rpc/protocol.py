"""Requests as structs, and the words for what is wrong with one."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any, Final, TypeAlias, TypeGuard, TypeVar, cast

import msgspec
from msgspec import Meta

from prism.cli._options import MAX_TOOL_ROUNDS
from prism.core import (
    RPC_CODES,
    ContentBlock,
    DecodeError,
    ErrorInfo,
    ModelConfig,
    PrismError,
    StoreConflict,
    UsageError,
    convert_blocks,
    error_info,
    is_thinking_level,
    parse_json,
)

PROTOCOL_VERSION: Final = 1

MAX_IN_FLIGHT: Final = 1_024
"""Requests that may wait for their response at a time."""

MAX_SESSIONS: Final = 1_000
"""Sessions that one process holds open."""

MAX_QUEUED: Final = 256
"""Inputs that may wait in a session, steering and follow-ups together: the runtime's own limit."""

RequestId: TypeAlias = str | int | float

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_P = TypeVar("_P", bound="Params")


class RpcError(PrismError):
    """A request that is refused before anything was done."""

    default_code = "invalid_request"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose envelope is right; `params` are read when its command is known."""

    id: RequestId
    command: str
    params: dict[str, Any]


class Params(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all params; also those of a command that has none."""


NO_PARAMS: Final = Params()


class RunParams(Params, frozen=True, kw_only=True):
    """How to run; also the params of `continue`."""

    model: ModelConfig | _Text | None = None
    max_tool_rounds: Annotated[int, Meta(ge=1, le=MAX_TOOL_ROUNDS)] | None = None
    thinking_level: str | None = None

    def __post_init__(self) -> None:
        level = self.thinking_level
        if level is not None and not is_thinking_level(level):
            raise ValueError(f"Unknown thinking level {level!r}")


class PromptParams(RunParams, frozen=True, kw_only=True):
    """`prompt` is another name of `input`."""

    input: _Text | list[Any] | None = None
    prompt: _Text | list[Any] | None = None
    queue: bool = False


class InputParams(Params, frozen=True, kw_only=True):
    """Of `steer`."""

    input: _Text | list[Any] | None = None
    prompt: _Text | list[Any] | None = None


class AbortParams(Params, frozen=True, kw_only=True):
    """Default session: the current one."""

    reason: str | None = None
    session_id: _Text | None = None


class MessagesParams(Params, frozen=True, kw_only=True):
    """The newest *limit* entries; default: all."""

    limit: Annotated[int, Meta(ge=1)] | None = None


class SetModelParams(Params, frozen=True, kw_only=True):
    """`{model: {provider, model, …}}`, or `{provider, model}`; without provider: the same one."""

    model: ModelConfig | _Text
    provider: _Text | None = None

    def __post_init__(self) -> None:
        if self.provider is not None and isinstance(self.model, ModelConfig):
            raise ValueError("`provider` goes with the name of a model, not with a whole one")


class CompactParams(Params, frozen=True, kw_only=True):
    """Overrides of the session's own options."""

    keep_recent_entries: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    instructions: str | None = None


class SwitchParams(Params, frozen=True, kw_only=True):
    """`id` is another name of `sessionId`."""

    session_id: _Text | None = None
    id: _Text | None = None
    create: bool = False

    def __post_init__(self) -> None:
        if (self.session_id is None) == (self.id is None):
            raise ValueError("Give `sessionId`, or `id` for it")


class CopyParams(Params, frozen=True, kw_only=True):
    """Of `forkSession` and `cloneSession`."""

    leaf_id: _Text | None = None
    id: _Text | None = None


class CommandParams(Params, frozen=True, kw_only=True):
    """Of `command`."""

    name: _Text
    args: Any = None


class LabelParams(Params, frozen=True, kw_only=True):
    """Without `label` it is taken away; default target: the leaf."""

    label: str | None = None
    target_id: _Text | None = None


class CheckoutParams(Params, frozen=True, kw_only=True):
    """Without `leafId`: the empty root."""

    leaf_id: _Text | None = None


class ApproveParams(Params, frozen=True, kw_only=True):
    """`arguments` go with the decision `edited`."""

    approval_id: _Text
    decision: str
    arguments: dict[str, Any] | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.decision not in {"allowed", "edited", "denied"}:
            raise ValueError("`decision` is allowed, edited or denied")


def read_request(line: bytes) -> Request:
    """Read a line.

    Raises:
        RpcError: `parse_error`, `too_deep`, `invalid_id` or `invalid_request`. Its details hold
            the `id` if that could be read.
    """
    try:
        tree = parse_json(line)
    except DecodeError as error:
        raise RpcError(error.message, code=error.code) from None
    if not isinstance(tree, dict):
        raise RpcError("A request is a JSON object.")
    fields = cast("dict[str, Any]", tree)
    if line.count(b":") != _count_pairs(fields) and _has_repeated_key(line, fields):
        raise RpcError("An object of the request has the same key twice.", code="parse_error")
    request_id = fields.get("id")
    if not _is_id(request_id):
        raise RpcError("`id` has to be a string or a finite number.", code="invalid_id")
    command, params = fields.get("command"), fields.get("params")
    if not isinstance(command, str) or not command:
        raise refused(request_id, "`command` has to be the name of a command.", "invalid_request")
    if params is not None and not isinstance(params, dict):
        raise refused(request_id, "`params` has to be an object.", "invalid_params")
    return Request(id=request_id, command=command, params=cast("dict[str, Any]", params or {}))


def refused(request_id: RequestId, message: str, code: str) -> RpcError:
    """A refusal of a request whose id is known."""
    return RpcError(message, code=code, details={"id": request_id})


def _is_id(value: object) -> TypeGuard[RequestId]:
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def _count_pairs(tree: object) -> int:
    """How many keys with a value are in the objects of *tree*."""
    count = 0
    todo: list[object] = [tree]
    for item in todo:
        if isinstance(item, dict):
            values = list(cast("dict[str, object]", item).values())
            count += len(values)
        elif isinstance(item, list):
            values = cast("list[object]", item)
        else:
            continue
        todo += values
    return count


def _has_repeated_key(line: bytes, tree: object) -> bool:
    """Whether JSON text has more keys than what was read of it: one of two equal ones is lost."""
    bare = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Every second piece between quotes lies inside a string.
    return sum(piece.count(b":") for piece in bare.split(b'"')[::2]) != _count_pairs(tree)


def read_params(request: Request, kind: type[_P]) -> _P:
    """The params as the command takes them.

    Raises:
        UsageError: `invalid_params`, with the JSON path of what is wrong.
    """
    if not request.params and kind is Params:
        return cast("_P", NO_PARAMS)
    try:
        return msgspec.convert(request.params, kind)
    except msgspec.ValidationError as error:
        reason = str(error).replace("`$", "`params")
        raise UsageError(f"Wrong params of {request.command}: {reason}.") from None
    except UnicodeEncodeError:
        raise UsageError(
            f"Wrong params of {request.command}: a lone surrogate stands where no text can be."
        ) from None


def read_input(params: PromptParams | InputParams) -> str | list[ContentBlock]:
    """What is said to the model.

    Raises:
        UsageError: There is none, there are two, or its blocks are wrong.
    """
    given = [value for value in (params.input, params.prompt) if value is not None]
    if len(given) != 1:
        raise UsageError("Give `input`, or `prompt` for it: a text or a list of blocks.")
    value = given[0]
    if isinstance(value, str):
        if not value.strip():
            raise UsageError("`input` is blank.")
        return value
    if not value:
        raise UsageError("`input` is an empty list.")
    try:
        return convert_blocks(value)
    except DecodeError as error:
        raise UsageError(f"Wrong blocks in `input`: {error.message}") from None


def describe_failure(error: Exception) -> ErrorInfo:
    """A failure with a code of the protocol; a finer one stays in `details.reason`."""
    info = error_info(error)
    if isinstance(error, StoreConflict):
        return _recoded(info, "store_conflict")
    if info.code == "queue_full":
        return _recoded(info, "session_busy")
    if isinstance(error, RpcError):
        details = {key: value for key, value in (info.details or {}).items() if key != "id"}
        return msgspec.structs.replace(info, name=None, details=details or None)
    if isinstance(error, DecodeError) or (
        isinstance(error, UsageError) and error.code not in RPC_CODES
    ):
        return _recoded(info, "invalid_params")
    return info


def _recoded(info: ErrorInfo, code: str) -> ErrorInfo:
    if info.code == code:
        return info
    return msgspec.structs.replace(
        info, code=code, details={**(info.details or {}), "reason": info.code}
    )

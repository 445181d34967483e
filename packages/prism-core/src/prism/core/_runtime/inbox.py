"""What was said to a session while its model was busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from prism.core._contracts import InputRequest
from prism.core._errors import UsageError
from prism.core._wire import Message, to_plain
from prism.core._wire.content import ContentBlock
from prism.core.prompt import DefaultInputBuilder

if TYPE_CHECKING:
    from prism.core._runtime.session_base import SessionBase

RunInput: TypeAlias = str | Message | list[ContentBlock | Message]
"""What a host may say: text, content blocks, a message, or several."""

MAX_QUEUED: Final = 256
"""Most inputs that wait in one session, both queues together."""


class Inbox:
    """Two queues. Steering outranks follow-up; each item leaves exactly once."""

    __slots__ = ("follow_up", "steer")

    def __init__(self) -> None:
        # Lists, because there is an inbox in every session, and an empty deque is not small.
        self.steer: list[Any] = []
        self.follow_up: list[Any] = []

    def __len__(self) -> int:
        return len(self.steer) + len(self.follow_up)

    def check_room(self) -> None:
        """Refuse one more input when too many wait already.

        Raises:
            UsageError: `queue_full`.
        """
        if len(self) >= MAX_QUEUED:
            raise UsageError(
                f"{MAX_QUEUED} inputs are waiting already; more are not taken.",
                code="queue_full",
                details={"limit": MAX_QUEUED},
            )

    def take_steer(self) -> list[Any]:
        """All steering input, in order."""
        taken = list(self.steer)
        self.steer.clear()
        return taken

    def take_follow_up(self) -> list[Any]:
        """The oldest follow-up, if there is one."""
        return [self.follow_up.pop(0)] if self.follow_up else []

    def clear(self) -> tuple[list[Any], list[Any]]:
        """Take everything out."""
        taken = list(self.steer), list(self.follow_up)
        self.steer.clear()
        self.follow_up.clear()
        return taken


def check_not_empty(value: object) -> None:
    """Refuse what is nothing, whatever the input builder takes.

    Raises:
        UsageError: the input is empty or blank.
    """
    if value is None or (isinstance(value, str | list | tuple) and not value):
        raise UsageError("The input is empty.", details={"reason": "empty_input"})
    if isinstance(value, str) and not value.strip():
        raise UsageError("The input is blank.", details={"reason": "empty_input"})


def queued_input(session: SessionBase, value: Any) -> Any:
    """*value* as it can wait: what would be refused when its turn comes is refused now.

    Raises:
        UsageError: it is no input, or holds results of tools; `queue_full`.
        EncodeError: it is no JSON.
    """
    check_not_empty(value)
    session.inbox.check_room()
    to_plain(value)
    if isinstance(value, list | tuple):
        items: list[Any] = [*value]
        value = items
    builder = session.agent.input_builder
    if type(builder) is DefaultInputBuilder:
        request = InputRequest(session_id=session.id, run_id="", input=value)
        for message in _build_now(builder, request):
            if message.role == "tool":
                raise UsageError(
                    "Results of tools cannot wait in a queue; give them to run().",
                    details={"reason": "misplaced_result"},
                )
    return value


def _build_now(builder: DefaultInputBuilder, request: InputRequest) -> list[Message]:
    """What the default builder makes; it never suspends, so it needs no event loop."""
    building = builder.build(request)
    try:
        building.send(None)
    except StopIteration as finished:
        messages: list[Message] = finished.value
        return messages
    finally:
        building.close()
    raise AssertionError

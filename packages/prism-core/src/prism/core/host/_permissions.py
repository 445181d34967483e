"""Who may do what, as a list of rules."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from prism.core._contracts import (
    PermissionDecision,
    PermissionPolicy,
    PermissionRequest,
    PermissionVerdict,
)
from prism.core._errors import PermissionDenied, UsageError

_VERDICTS: Final = ("allow", "deny", "ask")


class PermissionRule(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict for the requests that match.

    Attributes:
        action: Pattern of the action, such as `tool`.
        name: Pattern of what is acted on. In both, `*` stands for any characters (also `/`), `?`
            for one, `[…]` for a set; capitals count.
        reason: For the model and the host to read.
    """

    verdict: PermissionVerdict
    action: str = "*"
    name: str = "*"
    reason: str | None = None

    def matches(self, request: PermissionRequest) -> bool:
        """Whether the rule is about *request*."""
        return fnmatchcase(request.action, self.action) and fnmatchcase(request.name, self.name)


class StaticPermissionPolicy:
    """The first rule that matches decides.

    Args:
        rules: In order; the narrow ones before the wide ones.
        default: What no rule is about.

    Raises:
        UsageError: `invalid_params` for a verdict that is none.
    """

    __slots__ = ("_default", "_rules")

    def __init__(
        self, rules: Sequence[PermissionRule] = (), *, default: PermissionVerdict = "deny"
    ) -> None:
        for verdict in (default, *(rule.verdict for rule in rules)):
            if verdict not in _VERDICTS:
                raise UsageError(f"A verdict is 'allow', 'deny' or 'ask', not {verdict!r}.")
        self._rules = tuple(rules)
        self._default: PermissionVerdict = default

    async def decide(self, request: PermissionRequest) -> PermissionDecision:
        """The verdict of the first rule that matches."""
        for rule in self._rules:
            if rule.matches(request):
                return PermissionDecision(verdict=rule.verdict, reason=rule.reason)
        return PermissionDecision(
            verdict=self._default,
            reason=f"No rule is about {request.action} {request.name!r}.",
        )


async def assert_permission(policy: PermissionPolicy | None, request: PermissionRequest) -> None:
    """Return only when *policy* allows *request*; without a policy nothing is allowed.

    Raises:
        PermissionDenied: `permission_denied`, or `approval_required` when somebody would have to
            be asked first.
    """
    if policy is None:
        decision = PermissionDecision(verdict="deny", reason="There is no permission policy.")
    else:
        decision = await policy.decide(request)
    if decision.verdict == "allow":
        return
    asks = decision.verdict == "ask"
    reason = f" {decision.reason}" if decision.reason else ""
    raise PermissionDenied(
        f"{request.action} {request.name!r} {'needs an approval' if asks else 'is not allowed'}."
        f"{reason}",
        code="approval_required" if asks else "permission_denied",
        details={"action": request.action, "name": request.name},
    )

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prism.core._errors import PermissionDenied, UsageError
from prism.core.host import (
    PermissionPolicy,
    PermissionRequest,
    PermissionRule,
    StaticPermissionPolicy,
    StaticTrustPolicy,
    TrustPolicy,
    assert_permission,
    assert_trusted,
)

POLICY = StaticPermissionPolicy(
    [
        PermissionRule(verdict="deny", action="tool", name="fs_write", reason="Read only."),
        PermissionRule(verdict="ask", action="tool", name="fs_*"),
        PermissionRule(verdict="allow", action="tool", name="get_[ab]?"),
        PermissionRule(verdict="allow", action="read", name="/srv/*"),
    ]
)


@pytest.mark.parametrize(
    ("action", "name", "verdict"),
    [
        ("tool", "fs_write", "deny"),
        ("tool", "fs_read", "ask"),
        ("tool", "get_a1", "allow"),
        ("tool", "get_c1", "deny"),
        ("tool", "FS_READ", "deny"),
        ("read", "/srv/a/b", "allow"),
        ("write", "/srv/a/b", "deny"),
    ],
)
async def test_the_first_rule_that_matches_decides_and_unknown_things_are_denied(
    action: str, name: str, verdict: str
) -> None:
    decision = await POLICY.decide(PermissionRequest(action=action, name=name))
    assert decision.verdict == verdict


async def test_a_denial_says_why() -> None:
    request = PermissionRequest(action="tool", name="fs_write")
    assert (await POLICY.decide(request)).reason == "Read only."
    unknown = await POLICY.decide(PermissionRequest(action="tool", name="other"))
    assert unknown.reason == "No rule is about tool 'other'."


async def test_the_default_can_be_set() -> None:
    policy = StaticPermissionPolicy(default="ask")
    request = PermissionRequest(action="tool", name="any")
    assert (await policy.decide(request)).verdict == "ask"
    assert isinstance(policy, PermissionPolicy)


def test_a_verdict_that_is_none_is_refused() -> None:
    wrong: Any = "maybe"
    with pytest.raises(UsageError, match="'maybe'"):
        StaticPermissionPolicy([PermissionRule(verdict=wrong)])
    with pytest.raises(UsageError, match="'maybe'"):
        StaticPermissionPolicy(default=wrong)


async def test_assert_permission_returns_only_when_allowed() -> None:
    await assert_permission(POLICY, PermissionRequest(action="tool", name="get_a1"))
    cases: list[tuple[PermissionPolicy | None, str, str, str]] = [
        (POLICY, "fs_write", "permission_denied", "'fs_write' is not allowed. Read only."),
        (POLICY, "fs_read", "approval_required", "'fs_read' needs an approval."),
        (None, "get_a1", "permission_denied", "There is no permission policy."),
    ]
    for policy, name, code, text in cases:
        with pytest.raises(PermissionDenied, match=text) as caught:
            await assert_permission(policy, PermissionRequest(action="tool", name=name))
        assert caught.value.code == code
        assert caught.value.details == {"action": "tool", "name": name}


def test_what_lies_in_a_root_is_trusted(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    policy = StaticTrustPolicy([root], sources=["builtin:demo"])
    assert isinstance(policy, TrustPolicy)
    for subject in (root, root / "sub", root / "sub" / "not-there.toml", "builtin:demo"):
        assert policy.is_trusted(str(subject))
    for subject in (
        tmp_path,
        f"{root}-beside",
        root / ".." / "other",
        "builtin:other",
        "",
        "nul\0byte",
    ):
        assert not policy.is_trusted(str(subject))


def test_links_are_followed_before_a_path_is_trusted(tmp_path: Path) -> None:
    root, outside, alias = tmp_path / "root", tmp_path / "outside", tmp_path / "alias"
    root.mkdir()
    outside.mkdir()
    (root / "out").symlink_to(outside)
    (root / "loop").symlink_to(root / "loop")
    alias.symlink_to(root)
    policy = StaticTrustPolicy([alias])
    assert policy.is_trusted(str(root / "file"))
    assert not policy.is_trusted(str(root / "out" / "file"))
    assert not policy.is_trusted(str(root / "loop" / "file"))


def test_assert_trusted_returns_only_when_trusted(tmp_path: Path) -> None:
    policy = StaticTrustPolicy([tmp_path])
    assert_trusted(policy, tmp_path / "a")
    for refusing in (None, StaticTrustPolicy()):
        with pytest.raises(PermissionDenied, match="is not trusted") as caught:
            assert_trusted(refusing, tmp_path / "a")
        assert caught.value.code == "not_trusted"

"""Recorded answers of real vendors: read beside the checkout, never part of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DIRECTORY = Path(__file__).resolve().parents[5] / "shared" / "fixtures" / "recordings"
_ABSENT = "the recordings are not beside the checkout (../shared/fixtures/recordings)"


@dataclass(frozen=True)
class Recording:
    """One recorded answer.

    Attributes:
        body: The exact bytes of the body.
        expected: What the vendor's own SDK made of it.
    """

    id: str
    status: int
    headers: dict[str, str]
    body: bytes
    expected: dict[str, Any]
    request: dict[str, Any] | None


def recordings(api: str) -> pytest.MarkDecorator:
    """Runs a test with each recording of *api* as the argument `recording`."""
    paths = sorted(DIRECTORY.glob(f"{api}--*.json"))
    if paths:
        return pytest.mark.parametrize(
            "recording", [_load(path) for path in paths], ids=lambda recording: recording.id
        )
    return pytest.mark.parametrize(
        "recording", [pytest.param(None, marks=pytest.mark.skip(reason=_ABSENT))]
    )


def recorded(*names: str) -> pytest.MarkDecorator:
    """Runs a test once, with these recordings as the argument `turns`."""
    paths = [DIRECTORY / f"{name}.json" for name in names]
    if all(path.is_file() for path in paths):
        return pytest.mark.parametrize("turns", [[_load(path) for path in paths]], ids=["recorded"])
    return pytest.mark.parametrize(
        "turns", [pytest.param(None, marks=pytest.mark.skip(reason=_ABSENT))]
    )


def _load(path: Path) -> Recording:
    data = json.loads(path.read_text(encoding="utf-8"))
    return Recording(
        id=path.stem,
        status=data["status"],
        headers={name.lower(): str(value) for name, value in data["response_headers"].items()},
        body=data["body_text"].encode(),
        expected=data["expected"],
        request=data["request"],
    )

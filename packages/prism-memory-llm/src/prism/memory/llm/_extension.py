"""The strategy as a contribution to an extension kernel."""

from __future__ import annotations

from typing import Final, Unpack

from prism.core.extensions import ExtensionApi, SimpleExtension
from prism.memory.llm._strategy import (
    CodingCompactionStrategy,
    LlmCompactionOptions,
    LlmCompactionStrategy,
)

EXTENSION_NAME: Final = "prism.memory.llm"


def llm_compaction_extension(
    *, coding: bool = False, **options: Unpack[LlmCompactionOptions]
) -> SimpleExtension:
    """An extension that contributes one compaction strategy, under the strategy's name.

    Loading it has no other effect: a session uses the strategy when the host selects it. The
    extension is named `prism.memory.llm/` and the strategy's name, so that several can be loaded.

    Args:
        coding: Contribute the preset `CodingCompactionStrategy`.
        **options: Of the strategy.

    Raises:
        UsageError: As the strategy.
    """
    # The preset itself refuses what it fixes.
    make: type[LlmCompactionStrategy] = (
        CodingCompactionStrategy if coding else LlmCompactionStrategy
    )
    strategy = make(**options)

    def setup(api: ExtensionApi) -> None:
        api.compaction_strategies.register(strategy.name, strategy)

    return SimpleExtension(f"{EXTENSION_NAME}/{strategy.name}", setup)

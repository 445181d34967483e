"""Source-backed observational memory: observations that point at the entries they came from.

Importing this starts nothing. Records, folding, projection, rendering, recall and compaction are
functions of the entries that they are given; only `ObservationalMemory` makes model calls, when it
is asked to.
"""

from prism.memory.observational._commands import (
    memory_commands,
    status_command,
    view_command,
)
from prism.memory.observational._extension import (
    ObservationalMemoryExtension,
    observational_memory_extension,
)
from prism.memory.observational._ledger import (
    Frontier,
    Ledger,
    coverage_tier,
    earlier_marker,
    fold_ledger,
    unobserved,
)
from prism.memory.observational._parse import FoldedMemory, LedgerRecord, parse_record
from prism.memory.observational._projection import (
    MAX_FOLDED_BYTES,
    MAX_SUMMARY_BYTES,
    Fold,
    Projection,
    build_projection,
    fold_memory,
    folded_details,
)
from prism.memory.observational._recall import (
    DEFAULT_RECALL_CHARS,
    MAX_RECALL_CHARS,
    Recall,
    RecalledObservation,
    RecalledReflection,
    recall,
    recall_text,
)
from prism.memory.observational._records import (
    RELEVANCES,
    Observation,
    Reflection,
    drops_record,
    is_memory_id,
    make_observation,
    make_reflection,
    memory_id,
    observations_record,
    reflections_record,
    supersession_record,
)
from prism.memory.observational._render import MEMORY_PREAMBLE, render_memory
from prism.memory.observational._runtime import (
    FlushResult,
    MemoryHooks,
    ObservationalMemory,
    ProviderFactory,
    WorkerJob,
    WorkerOutput,
    WorkerResult,
    WorkerRole,
)
from prism.memory.observational._settings import (
    ObservationalMemorySettings,
    ResolvedSettings,
    SettingOrigin,
    resolve_settings,
)
from prism.memory.observational._sources import is_source
from prism.memory.observational._status import (
    MemoryStatus,
    RuntimeState,
    WorkerState,
    memory_status,
    status_text,
    view_text,
)
from prism.memory.observational._strategy import ObservationalCompactionStrategy
from prism.memory.observational._tool import GetEntries, recall_tool
from prism.memory.observational._transfer import (
    MemoryDocument,
    export_memory,
    import_memory,
    seed_memory,
)
from prism.memory.observational._workers.prompts import (
    DROPPER_PROMPT,
    OBSERVER_PROMPT,
    REFLECTOR_PROMPT,
    WorkerPrompts,
)

__all__ = [
    "DEFAULT_RECALL_CHARS",
    "DROPPER_PROMPT",
    "MAX_FOLDED_BYTES",
    "MAX_RECALL_CHARS",
    "MAX_SUMMARY_BYTES",
    "MEMORY_PREAMBLE",
    "OBSERVER_PROMPT",
    "REFLECTOR_PROMPT",
    "RELEVANCES",
    "FlushResult",
    "Fold",
    "FoldedMemory",
    "Frontier",
    "GetEntries",
    "Ledger",
    "LedgerRecord",
    "MemoryDocument",
    "MemoryHooks",
    "MemoryStatus",
    "Observation",
    "ObservationalCompactionStrategy",
    "ObservationalMemory",
    "ObservationalMemoryExtension",
    "ObservationalMemorySettings",
    "Projection",
    "ProviderFactory",
    "Recall",
    "RecalledObservation",
    "RecalledReflection",
    "Reflection",
    "ResolvedSettings",
    "RuntimeState",
    "SettingOrigin",
    "WorkerJob",
    "WorkerOutput",
    "WorkerPrompts",
    "WorkerResult",
    "WorkerRole",
    "WorkerState",
    "build_projection",
    "coverage_tier",
    "drops_record",
    "earlier_marker",
    "export_memory",
    "fold_ledger",
    "fold_memory",
    "folded_details",
    "import_memory",
    "is_memory_id",
    "is_source",
    "make_observation",
    "make_reflection",
    "memory_commands",
    "memory_id",
    "memory_status",
    "observational_memory_extension",
    "observations_record",
    "parse_record",
    "recall",
    "recall_text",
    "recall_tool",
    "reflections_record",
    "render_memory",
    "resolve_settings",
    "seed_memory",
    "status_command",
    "status_text",
    "supersession_record",
    "unobserved",
    "view_command",
    "view_text",
]

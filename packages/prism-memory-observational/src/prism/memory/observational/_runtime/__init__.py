"""The part in which things happen in time."""

from prism.memory.observational._runtime.hooks import MemoryHooks, WorkerJob, WorkerOutput
from prism.memory.observational._runtime.memory import ObservationalMemory
from prism.memory.observational._runtime.results import FlushResult, WorkerResult
from prism.memory.observational._runtime.roles import ProviderFactory, WorkerRole

__all__ = [
    "FlushResult",
    "MemoryHooks",
    "ObservationalMemory",
    "ProviderFactory",
    "WorkerJob",
    "WorkerOutput",
    "WorkerResult",
    "WorkerRole",
]

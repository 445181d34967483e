"""Extensions: named sets of contributions, which a host loads and then chooses from.

Loading an extension registers what it offers and starts nothing. The hooks of middleware and their
payloads are here too.
"""

from prism.core._contracts import (
    HOOKS,
    CompactionPayload,
    CompactionRequestPayload,
    ContextPayload,
    Extension,
    InputPayload,
    Middleware,
    MiddlewareFailure,
    MiddlewarePolicy,
    Next,
    PromptPayload,
    ProviderRequestPayload,
    RetryPayload,
    SessionPayload,
    ToolCallPayload,
    ToolResultPayload,
)
from prism.core._middleware import MiddlewareInfo, MiddlewareRegistry
from prism.core.extensions._api import Contributions, ExtensionApi, ExtensionEvents
from prism.core.extensions._define import Setup, SimpleExtension, extension
from prism.core.extensions._entry_points import ENTRY_POINT_GROUP, load_entry_points
from prism.core.extensions._events import (
    DEFAULT_MAX_HANDLERS,
    MAX_EMIT_DEPTH,
    ExtensionEventBus,
    HandlerFailure,
)
from prism.core.extensions._kernel import MAX_EXTENSIONS, ExtensionKernel
from prism.core.extensions._kinds import (
    CONTRIBUTION_REGISTRIES,
    AgentFactory,
    AuthMethod,
    ContributionRegistries,
    ProviderPackage,
    StoreFactory,
)
from prism.core.extensions._registry import ContributionRegistry

__all__ = [
    "CONTRIBUTION_REGISTRIES",
    "DEFAULT_MAX_HANDLERS",
    "ENTRY_POINT_GROUP",
    "HOOKS",
    "MAX_EMIT_DEPTH",
    "MAX_EXTENSIONS",
    "AgentFactory",
    "AuthMethod",
    "CompactionPayload",
    "CompactionRequestPayload",
    "ContextPayload",
    "ContributionRegistries",
    "ContributionRegistry",
    "Contributions",
    "Extension",
    "ExtensionApi",
    "ExtensionEventBus",
    "ExtensionEvents",
    "ExtensionKernel",
    "HandlerFailure",
    "InputPayload",
    "Middleware",
    "MiddlewareFailure",
    "MiddlewareInfo",
    "MiddlewarePolicy",
    "MiddlewareRegistry",
    "Next",
    "PromptPayload",
    "ProviderPackage",
    "ProviderRequestPayload",
    "RetryPayload",
    "SessionPayload",
    "Setup",
    "SimpleExtension",
    "StoreFactory",
    "ToolCallPayload",
    "ToolResultPayload",
    "extension",
    "load_entry_points",
]

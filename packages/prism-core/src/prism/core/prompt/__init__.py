"""What the model reads: system layers, context, input, skills, and the layout of a request."""

from prism.core._contracts import (
    BuiltPrompt,
    ContextProvider,
    ContextRequest,
    InputBuilder,
    InputRequest,
    PromptBuilder,
    PromptInput,
)
from prism.core.prompt._builder import (
    CONTEXT_MARKER,
    SUMMARY_MARKER,
    DefaultPromptBuilder,
    assemble_provider_input,
    context_messages,
    summary_messages,
    tool_specs,
)
from prism.core.prompt._context import OptionalContext, StaticContext, resolve_context
from prism.core.prompt._input import MAX_SHOWN_URI_BYTES, DefaultInputBuilder, resource_block
from prism.core.prompt._skills import (
    MAX_SKILL_NAME_CHARS,
    Skill,
    SkillRegistry,
    resolve_active_skills,
)
from prism.core.prompt._system import (
    SYSTEM_LEVELS,
    SystemLayer,
    SystemLevel,
    SystemMode,
    SystemPart,
    compose_system_prompt,
    merge_system_prompt,
    system_layer,
)
from prism.core.prompt._template import render_prompt_template

__all__ = [
    "CONTEXT_MARKER",
    "MAX_SHOWN_URI_BYTES",
    "MAX_SKILL_NAME_CHARS",
    "SUMMARY_MARKER",
    "SYSTEM_LEVELS",
    "BuiltPrompt",
    "ContextProvider",
    "ContextRequest",
    "DefaultInputBuilder",
    "DefaultPromptBuilder",
    "InputBuilder",
    "InputRequest",
    "OptionalContext",
    "PromptBuilder",
    "PromptInput",
    "Skill",
    "SkillRegistry",
    "StaticContext",
    "SystemLayer",
    "SystemLevel",
    "SystemMode",
    "SystemPart",
    "assemble_provider_input",
    "compose_system_prompt",
    "context_messages",
    "merge_system_prompt",
    "render_prompt_template",
    "resolve_active_skills",
    "resolve_context",
    "resource_block",
    "summary_messages",
    "system_layer",
    "tool_specs",
]

"""From a conversation that any model wrote to what one wire takes.

An adapter describes its wire as a `Target`, brings a function that encodes one message, and gets
the encoded messages of a request from `Conversations`, which each provider keeps as
`_conversations`. `transform` does the same once, without encoding.
"""

from prism.core.providers._transform.cache import Conversations
from prism.core.providers._transform.conversation import transform
from prism.core.providers._transform.layout import Encode, Sent
from prism.core.providers._transform.target import Target, target_for, target_of

__all__ = ["Conversations", "Encode", "Sent", "Target", "target_for", "target_of", "transform"]

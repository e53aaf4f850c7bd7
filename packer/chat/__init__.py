"""Chats to texts and to what is trained in them.

    ChatOptions, templates   which template, which special tokens, which date: from folder and user
    rendering                one compiled template: messages in, text out, in the sandbox of transformers
    spans                    which characters the assistant wrote
    renderer                 Renderer: a record in, its texts and spans out

Nothing here knows token ids: spans are of characters, and `packer.alignment` makes masks of them. transformers is
imported in `rendering` alone, when the first template is compiled.
"""

from packer.chat.renderer import Renderer
from packer.chat.templates import ChatOptions, parse_template_args

__all__ = ["ChatOptions", "Renderer", "parse_template_args"]

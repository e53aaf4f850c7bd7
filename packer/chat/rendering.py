"""One compiled chat template, as transformers compiles it: the same sandbox, filters and functions, so the same text.

Two things differ. The date is pinned, since output must not change from day to day; and a template is compiled once and
rendered from plain data, without the checks that `apply_chat_template` makes of objects and functions at each call: it
is the rendering of chats, not the tokenizing, that a core with one interpreter has to do alone.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping
from typing import Any

from packer.chat.streaming import streaming
from packer.conversation import RenderError
from packer.errors import PackerError, UsageError

Span = tuple[int, int]
TURN = "packer_turn_begins"  # a name that no template uses


class ChatTemplateError(RenderError):
    """The template itself failed on a chat."""


class Template:
    """A template's text, compiled. Syntax errors are a UsageError, errors while rendering a ChatTemplateError.

    marked: whether `{% generation %}` marks what the assistant wrote; prompts: whether the template knows
    `add_generation_prompt`; dated: whether it asks for the date; streaming: whether it writes message by message.
    """

    def __init__(self, name: str, source: str, date: datetime.datetime) -> None:
        compiler = _compiler()
        from jinja2 import TemplateError, nodes

        self.name = name
        self._failures = (TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError)
        try:
            # A copy: transformers keeps its own, and this process may use that for itself.
            self._environment = compiler(source).environment.overlay()
            self._environment.getattr = _remembering(self._environment.getattr)
            tree = self._environment.parse(source)
            self._globals = {**self._environment.globals, "strftime_now": date.strftime}
            self._compiled = self._compile(source)
        except TemplateError as error:
            line = getattr(error, "lineno", None)
            place = f", line {line}" if line else ""
            raise UsageError(f"chat template {name}{place}: {error}") from error
        names = {node.name for node in tree.find_all(nodes.Name)}
        self.prompts = "add_generation_prompt" in names
        self.dated = "strftime_now" in names
        self.marked = _has_markers(tree, nodes) and not _hides_markers(tree, nodes)
        self.streaming = streaming(tree, nodes)
        self._streamed: Any = self._telling_turns(tree, nodes)

    def render(self, variables: Mapping[str, Any]) -> str:
        try:
            return str(self._compiled.render(variables))
        except self._failures as error:
            raise ChatTemplateError(_reason(self.name, error)) from error

    def render_streamed(self, variables: Mapping[str, Any]) -> tuple[str, list[int]]:
        """The text, and the places in it where each turn of the loop over messages begins and where the loop ends."""
        blocks: list[str] = []
        places: list[int] = []
        length = 0

        def turn_begins() -> str:
            places.append(length)
            return ""

        try:
            for block in self._streamed.generate({**variables, TURN: turn_begins}):
                blocks.append(block)
                length += len(block)
        except self._failures as error:
            raise ChatTemplateError(_reason(self.name, error)) from error
        return "".join(blocks), places

    def _compile(self, source: Any) -> Any:
        compiled = self._environment.from_string(source)
        compiled.globals = self._globals
        return compiled

    def _telling_turns(self, tree: Any, nodes: Any) -> Any:
        """The template with a call at the beginning of each turn of the loop and after the loop."""
        if self.streaming is None:
            return None
        loop = tree.body[self.streaming.loop]
        for parts, place in ((loop.body, 0), (tree.body, self.streaming.loop + 1)):
            call = nodes.Call(nodes.Name(TURN, "load"), [], [], None, None)
            parts.insert(place, nodes.Output([call]).set_lineno(loop.lineno).set_environment(self._environment))
        return self._compile(tree)

    def render_marked(self, variables: Mapping[str, Any]) -> tuple[str, list[Span]]:
        """The text, and the spans of characters that `{% generation %}` marks, in order."""
        blocks: list[str] = []
        spans: list[Span] = []
        try:
            with self._environment.activate_tracker(blocks, spans):
                for block in self._compiled.generate(variables):
                    blocks.append(block)  # one by one: the tracker looks at what is there so far
        except self._failures as error:
            raise ChatTemplateError(_reason(self.name, error)) from error
        return "".join(blocks), spans


def _compiler() -> Any:
    notices = logging.getLogger("transformers")
    notices.addFilter(_nothing)  # it says on import that models need PyTorch; templates do not
    try:
        from transformers.utils.chat_template_utils import _compile_jinja_template
    except ImportError as error:
        raise PackerError(
            f"chats are rendered by transformers and Jinja, and one of them cannot be imported ({error}); "
            "pip install 'packer[chat]'"
        ) from error
    finally:
        notices.removeFilter(_nothing)
    return _compile_jinja_template


def _nothing(_: logging.LogRecord) -> bool:
    return False


def _remembering(ask: Any) -> Any:
    """The sandbox's look-up of an attribute, `ask`, without asking again what it answers alike for all values of a
    type: that a dict has no such attribute, so its item is meant, and that a method of str, a loop's counter or what a
    template keeps in a namespace may be seen. Asking is a third of a rendering's time."""
    from jinja2.runtime import LoopContext
    from jinja2.utils import Namespace

    seen: set[tuple[type, str]] = set()

    def look_up(value: Any, name: str) -> Any:
        kind = type(value)
        if kind is dict:
            if name in value and not hasattr(dict, name):
                return value[name]
        elif (kind, name) in seen:
            found = getattr(value, name, None)
            if found is not None and (kind is str or not callable(found)):
                return found
        answer = ask(value, name)
        if (kind is str or issubclass(kind, LoopContext | Namespace)) and answer == getattr(value, name, None):
            seen.add((kind, name))
        return answer

    return look_up


def _reason(name: str, error: Exception) -> str:
    said = " ".join(str(error).split()) or type(error).__name__
    return f"chat template {name} cannot render this chat: {said}"


def _is_marker(node: Any, nodes: Any) -> bool:
    called = node.call.node if isinstance(node, nodes.CallBlock) else None
    return isinstance(called, nodes.ExtensionAttribute) and called.name == "_generation_support"


def _has_markers(tree: Any, nodes: Any) -> bool:
    return any(_is_marker(block, nodes) for block in tree.find_all(nodes.CallBlock))


def _hides_markers(tree: Any, nodes: Any) -> bool:
    """Whether markers stand inside what renders aside before it is put into the text, a macro for one: their positions
    would be of no use. Spans are then derived as if there were no markers."""
    aside = (nodes.Macro, nodes.CallBlock, nodes.AssignBlock, nodes.FilterBlock)
    within = [block for block in tree.find_all(aside) if not _is_marker(block, nodes)]
    within += [loop for loop in tree.find_all(nodes.For) if loop.recursive]
    return any(_has_markers(block, nodes) for block in within)

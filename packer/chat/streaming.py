"""Templates that write a chat message by message, found by reading them.

Most do: something before the messages, a loop over them, a generation prompt at the end. Then what a chat's beginning
would be rendered as follows from the chat itself: the text up to a message's place in the loop, and the prompt after
it. One rendering tells all, instead of two for each turn, which for a chat of 30 turns is 30 times the work.

That this holds is proved for the template, not tried: it may look at the first message from anywhere, at a message in
its turn of the loop, and at what earlier turns left in a namespace; never ahead (`loop.last`, `messages[-1]`, the
number of messages), never back from the prompt into what the loop left, and it may ask for the generation prompt only
after the loop. Anything not known to be harmless makes the answer no, and the chat's beginnings are rendered one by
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PROMPT = "add_generation_prompt"
BACKWARD = frozenset(
    {"first", "index", "index0", "previtem"}
)  # what a loop knows that does not depend on what is to come
STATEFUL = frozenset({"self", "cycler", "joiner", "lipsum", "caller", "varargs", "kwargs"})


@dataclass(frozen=True)
class Streaming:
    """loop: the place of the loop over messages among the template's parts; stateful: whether a turn of it leaves
    something to later ones."""

    loop: int
    stateful: bool


def streaming(tree: Any, nodes: Any) -> Streaming | None:
    """tree: the parsed template; nodes: `jinja2.nodes`. None where it is not known to write message by message."""
    foreign = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block)
    if next(tree.find_all(foreign), None) or any(name.name in STATEFUL for name in tree.find_all(nodes.Name)):
        return None
    aliases = _aliases(tree, nodes)
    loops = [
        i
        for i, part in enumerate(tree.body)
        if isinstance(part, nodes.For) and isinstance(part.iter, nodes.Name) and part.iter.name in aliases
    ]
    if len(loops) != 1:
        return None
    (place,) = loops
    head, loop, tail = tree.body[:place], tree.body[place], tree.body[place + 1 :]
    stateful = any(next(part.find_all(nodes.NSRef), None) for part in (loop, *tree.find_all(nodes.Macro)))
    holds = (
        _aliases_hold(tree, head, loop, aliases, nodes)
        and _looks_back_only(loop, nodes)
        and _is_prompt(tree, tail, nodes)
        and not (stateful and _reads_state(tree, tail, nodes))
    )
    return Streaming(place, stateful) if holds else None


def _is_messages(expression: Any, aliases: set[str], nodes: Any) -> bool:
    """`messages`, or what is left of them without the first few."""
    if isinstance(expression, nodes.Getitem) and isinstance(expression.arg, nodes.Slice):
        cut = expression.arg
        start = cut.start.value if isinstance(cut.start, nodes.Const) else None
        if not (isinstance(start, int) and start >= 0 and cut.stop is None and cut.step is None):
            return False
        expression = expression.node
    return isinstance(expression, nodes.Name) and expression.name in aliases


def _aliases(tree: Any, nodes: Any) -> set[str]:
    """Every name that the messages go by."""
    aliases, before = {"messages"}, 0
    while len(aliases) > before:
        before = len(aliases)
        for assign in tree.find_all(nodes.Assign):
            if isinstance(assign.target, nodes.Name) and _is_messages(assign.node, aliases, nodes):
                aliases.add(assign.target.name)
    return aliases


def _aliases_hold(tree: Any, head: list[Any], loop: Any, aliases: set[str], nodes: Any) -> bool:
    """Whether the messages are only given names to, looked at as `messages[0]`, and looped over."""
    fine = {id(loop.iter)}
    for part in head:
        for assign in _with_itself(part, nodes.Assign):
            if isinstance(assign.target, nodes.Name) and _is_messages(assign.node, aliases, nodes):
                fine |= {id(name) for name in _with_itself(assign, nodes.Name)}
    for item in tree.find_all(nodes.Getitem):
        if isinstance(item.arg, nodes.Const) and item.arg.value == 0 and item.arg.value is not False:
            fine.add(id(item.node))
    return all(id(name) in fine for name in tree.find_all(nodes.Name) if name.name in aliases)


def _looks_back_only(loop: Any, nodes: Any) -> bool:
    plain = isinstance(loop.target, nodes.Name) and loop.test is None and not loop.else_ and not loop.recursive
    if not plain or next(loop.find_all(nodes.Break), None):
        return False
    known = {
        id(use.node) for use in _outer(loop.body, nodes) if isinstance(use, nodes.Getattr) and use.attr in BACKWARD
    }
    return all(
        id(name) in known for name in _outer(loop.body, nodes) if isinstance(name, nodes.Name) and name.name == "loop"
    )


def _outer(parts: list[Any], nodes: Any) -> Iterator[Any]:
    """All nodes in which `loop` is that of the messages: not the bodies of loops inside."""
    for part in parts:
        yield part
        if isinstance(part, nodes.For) and not part.recursive:
            yield from _outer([part.target, part.iter, *part.else_, *filter(None, [part.test])], nodes)
        else:
            yield from _outer(list(part.iter_child_nodes()), nodes)


def _is_prompt(tree: Any, tail: list[Any], nodes: Any) -> bool:
    """Whether all after the loop is the generation prompt, and nothing before it asks for one."""
    for part in tail:
        if not isinstance(part, nodes.If) or part.elif_ or part.else_:
            return False
        test = part.test
        while isinstance(test, nodes.And):
            test = test.left
        if not (isinstance(test, nodes.Name) and test.name == PROMPT):
            return False
    asked = [name for part in tail for name in part.find_all(nodes.Name) if name.name == PROMPT]
    return bool(len(asked) == sum(name.name == PROMPT for name in tree.find_all(nodes.Name)))


def _reads_state(tree: Any, tail: list[Any], nodes: Any) -> bool:
    """Whether the prompt may depend on anything that the template keeps."""
    own = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
    own |= {macro.name for macro in tree.find_all(nodes.Macro)}
    return any(name.name in own for part in tail for name in part.find_all(nodes.Name))


def _with_itself(part: Any, kind: Any) -> Iterator[Any]:
    if isinstance(part, kind):
        yield part
    yield from part.find_all(kind)

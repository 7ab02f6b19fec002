# SPDX-License-Identifier: Apache-2.0
"""What is in a text of CUDA C++: its kernels and their parameters, and the few words that a C++ compiler lacks.

Called by executor and host. A tokenizer and no parser: it finds `__global__` functions and GDA_KERNEL declarations,
simple typedefs and enums. What it cannot read it leaves to the compiler. Source: CUDA C++ Programming Guide, "C++
Language Extensions".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["KernelText", "Parameter", "Source", "for_host", "read", "template_arguments"]

_TOKEN = re.compile(
    r"""
      (?P<directive>(?<![^\n])[ \t]*\#(?:[^\n\\]|\\.)*)
    | (?P<skip>\n|[^\S\n]+|//[^\n]*|/\*.*?\*/)
    | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)")
    | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"|(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
    | (?P<word>[A-Za-z_]\w*)
    | (?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*)
    | (?P<mark2>::|->|<<=|==|<=|>=|!=|&&|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN, _CLOSE = "([{", ")]}"
# Words of a parameter that say nothing about its bytes.
_QUALIFIERS = {"const", "volatile", "__restrict__", "restrict", "__restrict", "__grid_constant__", "struct", "enum"}
# Between __global__ and the name, words with parentheses of their own.
_ATTRIBUTES = {"__launch_bounds__", "__maxnreg__", "__cluster_dims__", "__block_size__", "__attribute__", "alignas"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel. `type` is the pointee's when `pointers` is not 0; `const` says so of the pointee."""

    name: str
    type: str
    pointers: int = 0
    const: bool = False

    @property
    def text(self) -> str:
        """As in the source, roughly: `const float* values`."""
        return f"{'const ' if self.const else ''}{self.type}{'*' * self.pointers} {self.name}".strip()


@dataclass(frozen=True)
class KernelText:
    """A kernel as declared: full name, parameters, names of template parameters, line."""

    name: str
    parameters: tuple[Parameter, ...]
    template: tuple[str, ...] = ()
    line: int = 0


@dataclass
class Source:
    """Kernels by full name, aliases of types (name: type), included files, and texts of those that were read too."""

    kernels: dict[str, KernelText] = field(default_factory=dict)
    aliases: dict[str, Parameter] = field(default_factory=dict)
    includes: list[str] = field(default_factory=list)
    included: str = ""


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


def _tokens(text: str) -> list[_Token]:
    return [
        _Token("mark" if match.lastgroup == "mark2" else str(match.lastgroup), match.group(), match.start())
        for match in _TOKEN.finditer(text)
    ]


def _closing(tokens: Sequence[_Token], at: int) -> int:
    """Index of the bracket that closes the one at `at`, or the end."""
    depth = 0
    for i in range(at, len(tokens)):
        if tokens[i].kind == "mark":
            depth += (tokens[i].text in _OPEN) - (tokens[i].text in _CLOSE)
            if depth == 0:
                return i
    return len(tokens)


def _angles(tokens: Sequence[_Token], at: int) -> int:
    """Index of the `>` that closes the `<` at `at`, or the end."""
    depth = 0
    for i in range(at, len(tokens)):
        depth += (tokens[i].text == "<") - (tokens[i].text == ">")
        if depth == 0:
            return i
    return len(tokens)


def _split(tokens: Sequence[_Token]) -> Iterator[list[_Token]]:
    """Parts between the commas that lie in no bracket."""
    part: list[_Token] = []
    depth = 0
    for token in tokens:
        if token.kind == "mark":
            depth += (token.text in "([{<") - (token.text in ")]}>")
            if token.text == "," and depth == 0:
                yield part
                part = []
                continue
        part.append(token)
    if part:
        yield part


def _parameter(tokens: Sequence[_Token], named: bool = True) -> Parameter:
    """A parameter, or with named=False a type alone, from its tokens."""
    words: list[str] = []
    pointers, const, depth = 0, False, 0
    for token in tokens:
        if depth == 0 and token.text == "=":
            break
        depth += (token.text in ("<", "(")) - (token.text in (">", ")"))
        if token.text == "[":  # an array parameter is a pointer
            pointers += 1
            break
        if depth == 0 and token.text in "*&":
            pointers += 1
        elif token.text in _QUALIFIERS:
            const |= token.text == "const" and pointers == 0
        elif words and (token.kind != "word" or words[-1].endswith(("::", "<", ","))):
            words[-1] += token.text
        else:
            words.append(token.text)
    has_name = named and len(words) > 1 and not (set(words) <= _BASIC_WORDS)
    name = words.pop() if has_name else ""
    return Parameter(name, " ".join(words), pointers, const and pointers > 0)


_BASIC_WORDS = {"unsigned", "signed", "int", "long", "short", "char", "float", "double", "bool", "void"}


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        every = _tokens(text)
        self.directives = [token.text for token in every if token.kind == "directive"]
        self.tokens = [token for token in every if token.kind not in ("skip", "directive")]
        self.found = Source()
        self.scopes: list[str] = []
        self.opening = ""  # the namespace whose brace comes next
        self.template: tuple[str, ...] = ()

    def read(self) -> Source:
        for directive in self.directives:
            if match := re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', directive):
                self.found.includes.append(match[1] + match[2])
        at = 0
        while at < len(self.tokens):
            at = self._step(at)
        return self.found

    def _step(self, at: int) -> int:
        token, tokens = self.tokens[at], self.tokens
        if token.text == "{":
            self.scopes.append(self.opening)
            self.opening, self.template = "", ()
        elif token.text == "}":
            if self.scopes:
                self.scopes.pop()
        elif token.text == ";":
            self.template = ()
        elif token.kind != "word":
            return at + 1
        elif token.text == "namespace":
            end = at + 1
            while end < len(tokens) and tokens[end].text not in "{;=":
                end += 1
            self.opening = "".join(t.text for t in tokens[at + 1 : end])
            return end
        elif token.text == "template" and at + 1 < len(tokens) and tokens[at + 1].text == "<":
            end = _angles(tokens, at + 1)
            parts = (part[: _index(part, "=")] for part in _split(tokens[at + 2 : end]))
            self.template = tuple(part[-1].text for part in parts if part)
            return end + 1
        elif token.text == "GDA_KERNEL":
            return self._kernel(_closing(tokens, at + 1) + 1, at + 2)
        elif token.text == "__global__":
            name = at + 1
            while name + 1 < len(tokens) and not (tokens[name].kind == "word" and tokens[name + 1].text == "("):
                name += 1
            while name + 1 < len(tokens) and tokens[name].text in _ATTRIBUTES:
                name = _closing(tokens, name + 1) + 1
                while name + 1 < len(tokens) and not (tokens[name].kind == "word" and tokens[name + 1].text == "("):
                    name += 1
            return self._kernel(name + 1, name)
        elif token.text in ("typedef", "using"):
            return self._alias(at)
        elif token.text == "enum":
            name = at + 1 + (at + 1 < len(tokens) and tokens[at + 1].text in ("class", "struct"))
            if name + 1 < len(tokens) and tokens[name].kind == "word" and tokens[name + 1].text in ("{", ":"):
                kind = tokens[name + 2].text if tokens[name + 1].text == ":" else "int"
                self.found.aliases[tokens[name].text] = Parameter("", kind)
        return at + 1

    def _kernel(self, opening: int, name: int) -> int:
        if opening >= len(self.tokens) or self.tokens[opening].text != "(":
            return opening
        end = _closing(self.tokens, opening)
        parts = [part for part in _split(self.tokens[opening + 1 : end]) if [t.text for t in part] != ["void"]]
        full = "::".join([scope for scope in self.scopes if scope] + [self.tokens[name].text])
        line = self.text.count("\n", 0, self.tokens[name].at) + 1
        self.found.kernels[full] = KernelText(full, tuple(map(_parameter, parts)), self.template, line)
        return end + 1

    def _alias(self, at: int) -> int:
        end = at
        while end < len(self.tokens) and self.tokens[end].text not in (";", "{"):
            end += 1
        if end >= len(self.tokens) or self.tokens[end].text == "{":
            return at + 1
        part = self.tokens[at + 1 : end]
        texts = [token.text for token in part]
        if self.tokens[at].text == "using" and len(part) > 2 and texts[1] == "=":
            self.found.aliases[texts[0]] = _parameter(part[2:], named=False)
        elif self.tokens[at].text == "typedef" and len(part) > 1 and not {"(", "["} & set(texts):
            self.found.aliases[texts[-1]] = _parameter(part[:-1], named=False)
        return end


def _index(tokens: Sequence[_Token], text: str) -> int:
    return next((i for i, token in enumerate(tokens) if token.text == text), len(tokens))


def read(text: str) -> Source:
    """Find the kernels, type aliases and includes of a text."""
    return _Reader(text).read()


def template_arguments(name: str, kernel: KernelText) -> Mapping[str, Parameter]:
    """What the template parameters of `kernel` stand for in an instance written `kernel<int, 4>`."""
    inside = name[name.index("<") + 1 : name.rindex(">")] if "<" in name else ""
    tokens = [token for token in _tokens(inside) if token.kind != "skip"]
    return {key: _parameter(part, named=False) for key, part in zip(kernel.template, _split(tokens), strict=False)}


def for_host(text: str) -> str:
    """The text as a C++ compiler takes it: same lines, with `extern __shared__` arrays and spins rewritten.

    A loop whose condition only reads memory gets a call in it, so that the compiler reads again each time.
    """
    tokens = _tokens(text)
    solid = [i for i, token in enumerate(tokens) if token.kind not in ("skip", "directive")]
    out = [token.text for token in tokens]
    code = [tokens[i] for i in solid]
    depth = 0
    transparent: list[bool] = []  # braces that open a namespace or extern "C", not a function
    for at, token in enumerate(code):
        if token.text == "{":
            before = [t.text for t in code[max(0, at - 3) : at]]
            transparent.append("namespace" in before or (len(before) > 1 and before[-2] == "extern"))
            depth += not transparent[-1]
        elif token.text == "}" and transparent:
            depth -= not transparent.pop()
        elif token.text == "extern":
            _rewrite_shared(code, at, solid, out, inside=depth > 0)
        elif token.text in ("while", "for") and at + 1 < len(code) and code[at + 1].text == "(":
            _rewrite_loop(code, at, solid, out)
    return "".join(out)


def _rewrite_shared(code: Sequence[_Token], at: int, solid: Sequence[int], out: list[str], inside: bool) -> None:
    end = at
    while end < len(code) and code[end].text not in (";", "{", "("):
        end += 1
        if end < len(code) and code[end].text == "(" and code[end - 1].text in ("__align__", "alignas"):
            end = _closing(code, end) + 1
    words = [token.text for token in code[at:end]]
    if "__shared__" not in words or end >= len(code) or "[" not in words:
        return
    bracket = at + words.index("[")
    name = bracket - 1
    skip: set[int] = set()  # the words that are no part of the element type
    for i in range(at, name):
        if code[i].text in ("__align__", "alignas"):
            skip |= set(range(i, _closing(code, i + 1) + 1))
        elif code[i].text in ("extern", "__shared__", "static"):
            skip.add(i)
    element = " ".join(code[i].text for i in range(at, name) if i not in skip)
    for i in range(at, end):
        out[solid[i]] = ""
    if inside:
        base = "::gda_host_here->dynamic_shared"
        text = f"{element}* const {code[name].text} = static_cast<{element}*>({base})"
    else:
        text = f"static const ::gda::target::dynamic_shared<{element}> {code[name].text}"
    out[solid[at]] = text


def _rewrite_loop(code: Sequence[_Token], at: int, solid: Sequence[int], out: list[str]) -> None:
    first, last = at + 2, _closing(code, at + 1)
    if code[at].text == "for":
        semicolons = []
        depth = 0
        for i in range(first, last):
            depth += (code[i].text in _OPEN) - (code[i].text in _CLOSE)
            if depth == 0 and code[i].text == ";":
                semicolons.append(i)
        if len(semicolons) != 2 or semicolons[1] + 1 != last:
            return  # over a range, or with a step: it counts, it does not spin
        first, last = semicolons[0] + 1, semicolons[1]
        if first == last:
            out[solid[last]] = " (gda_host_loop(), true);"
            return
    if last >= len(code) or first == last or any(code[i].text == "=" for i in range(first, last)):
        return  # empty, or a declaration or assignment: `while (int n = next())`
    out[solid[first]] = "(gda_host_loop(), " + out[solid[first]]
    out[solid[last - 1]] += ")"

#!/usr/bin/env python3
"""Whether each file of C++ includes what declares the names that it uses, itself or through what it includes.

    includes_test.py [ROOT]          checks a checkout, and prints one sentence a name
    includes_test.py --self-test     plants a file that lacks an include, and expects it to be found

CI compiles the files of a target many at a time, where a file may have its names from a neighbor; alone it would not compile. So every
name that a header of ours declares at the level of a namespace (a type, a function, a constant, a macro) is looked for in all files that
use it. One is missing where no header that declares it can be reached from the file's own includes.

It reads text, in seconds, and errs on the side of silence: a name is passed over that the file declares itself, in whatever scope, or
that any header within reach mentions. Names of other libraries are the compiler's business: ./scripts/tidy --includes.
"""

from __future__ import annotations

import functools
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from layers_test import HIDES, MAY_INCLUDE, SOURCES

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")
# What is precompiled for every target of CI, so that a file that lacks it fails in other builds alone: the names of each header.
PRECOMPILED = {
    "fmt/format.h": r"\bfmt::",
    "tl/expected.hpp": r"\btl::",
    "algorithm": r"\bstd::(?:sort|stable_sort|find|find_if|any_of|all_of|none_of|max_element|min_element|count_if|copy_if|transform|reverse"
                 r"|unique|fill|replace|remove_if|partition|lower_bound|upper_bound|binary_search|clamp|is_sorted)\b",
    "array": r"\bstd::(?:array|to_array)\b",
    "filesystem": r"\bstd::filesystem\b",
    "functional": r"\bstd::function\b",
    "map": r"\bstd::(?:multi)?map\b",
    "memory": r"\bstd::(?:unique_ptr|shared_ptr|make_unique|make_shared)\b",
    "optional": r"\bstd::(?:optional|nullopt)\b",
    "set": r"\bstd::(?:multi)?set\b",
    "span": r"\bstd::span\b",
    "variant": r"\bstd::(?:variant|visit|get_if|holds_alternative|monostate)\b",
    "vector": r"\bstd::vector\b",
}
SYSTEM_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([^>]+)>", re.MULTILINE)
# Two names that are looked up where a template is filled in, by whoever does that; and the second variable of one declaration.
PASSED_OVER = {("core/base/object_fields.h", "write_json"), ("core/base/written_fields.h", "fields_of"),
               ("tests/simulator/memory_walk_test.cpp", "with")}
# What may stand before an expression, so that the word before a name is no type.
BEFORE_EXPRESSION = {"return", "else", "case", "throw", "new", "delete", "co_return", "and", "or", "not", "in", "do", "goto", "if", "while",
                     "constexpr", "sizeof", "typename", "operator"}
TYPE = re.compile(r"\b(?:struct|class|union|enum(?:\s+(?:class|struct))?|concept)\s+(?:\[\[\w+\]\]\s*|alignas\(\w+\)\s*)?([A-Za-z_]\w*)\s*(?:final\s*)?(?=[:{;=])")
ALIAS = re.compile(r"\busing\s+([A-Za-z_]\w*)\s*=")
CONSTANT = re.compile(r"\b(k[A-Z]\w*)\s*(?:\[[^\]]*\]\s*)*[={]")
KEYWORDS = {"sizeof", "alignof", "decltype", "noexcept", "requires", "void", "bool", "int", "char", "double", "float", "auto", "static_assert"}
TEST = re.compile(r"\b(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP)\s*\(\s*(\w+)")
FUNCTION = re.compile(r"(?<![\w.>:])(?!operator\b)([a-z_]\w*)\s*\((?=[^;{}]*[;{])")
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
ENUMERATORS = re.compile(r"\benum\b[^{};]*\{([^}]*)\}")
TOKEN = re.compile(r"[A-Za-z_]\w*|->|::|[^\s\w]")


def plain(text: str) -> str:
    return HIDES.sub(lambda hidden: re.sub(r"[^\n]", " ", hidden.group()), text)


def at_namespace_level(code: str) -> str:
    """The code without preprocessor lines and without what stands in braces, but for namespaces and extern "C"."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", code, flags=re.MULTILINE)
    kept, depth, head = [], 0, 0
    for sign in re.finditer(r"[{}]", code):
        if sign.group() == "{":
            opens_scope = depth == 0 and re.search(r"(?:\bnamespace(?:\s+[\w:]+)?|\bextern)\s*$", code[head:sign.start()])
            if depth == 0:
                kept.append(code[head:sign.start()] + ("" if opens_scope else "{"))
            if not opens_scope:
                depth += 1
            head = sign.end() if depth == 0 else head
        else:
            if depth == 0:
                kept.append(code[head:sign.start()])
            depth = max(0, depth - 1)
            head = sign.end()
    return ";".join([*kept, code[head:]]) if depth == 0 else ";".join(kept)


def declared_by(text: str) -> set[str]:
    code = plain(text)
    top = at_namespace_level(code)
    return {match[1] for pattern in (TYPE, ALIAS, CONSTANT, FUNCTION) for match in pattern.finditer(top)
            if match[1] not in KEYWORDS} | set(MACRO.findall(code))


class Tree:
    def __init__(self, root: pathlib.Path) -> None:
        self.texts = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8", errors="replace")
                      for folder in sorted(MAY_INCLUDE) if (root / folder).is_dir()
                      for path in sorted((root / folder).rglob("*")) if path.suffix in SOURCES}
        self.code = {name: plain(text) for name, text in self.texts.items()}
        self.words = {name: set(WORD.findall(code)) for name, code in self.code.items()}
        self.headers: dict[str, set[str]] = {}
        for name, text in self.texts.items():
            if name.endswith(".h"):
                for word in declared_by(text):
                    self.headers.setdefault(word, set()).add(name)

    @functools.cached_property
    def included(self) -> dict[str, list[str]]:
        return {name: [other for other in INCLUDE.findall(text) if other in self.texts] for name, text in self.texts.items()}

    def reach(self, name: str) -> set[str]:
        """All headers that come with the file."""
        seen: set[str] = set()
        left = list(self.included[name])
        while left:
            other = left.pop()
            if other not in seen:
                seen.add(other)
                left += self.included[other]
        return seen

    def missing(self, name: str) -> set[str]:
        folder = name.partition("/")[0]
        within = MAY_INCLUDE[folder] | {folder}
        candidates = {word for word in self.words[name] & self.headers.keys()
                      if name not in self.headers[word] and any(other.partition("/")[0] in within for other in self.headers[word])}
        for header in self.reach(name):
            candidates -= self.words[header]
        if not candidates:
            return candidates
        code = re.sub(r"^[ \t]*#[^\n]*", "", self.code[name], flags=re.MULTILINE)
        declares = {word for body in ENUMERATORS.findall(code) for word in WORD.findall(body)}
        declares |= set(TYPE.findall(code)) | set(TEST.findall(code)) | {word for file, word in PASSED_OVER if file == name}
        uses: set[str] = set()
        tokens = ["", *TOKEN.findall(code), ""]
        for before, word, behind in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if word not in candidates:
                continue
            is_type = not word[0].islower()
            # "Type word" and "Type& word" declare a function or a variable; "Word word" uses a type.
            follows_type = before.isidentifier() and before not in BEFORE_EXPRESSION or before in {">", "&", "*"}
            if follows_type and not (is_type and (behind.isidentifier() or behind in {"&", "*", "::", ">", "<"})):
                declares.add(word)
            elif before not in {".", "->", "::"} and (behind == "(" or is_type):
                uses.add(word)
        return uses - declares


def lacks_precompiled(tree: Tree, name: str) -> list[str]:
    code = tree.code[name]
    used = [header for header, pattern in PRECOMPILED.items() if re.search(pattern, code)]
    there = {header for file in (name, *tree.reach(name)) for header in SYSTEM_INCLUDE.findall(tree.texts[file])} if used else set()
    if there & {"fmt/core.h", "fmt/ranges.h"}:
        there.add("fmt/format.h")
    return [header for header in used if header not in there]


def errors_of(root: pathlib.Path) -> list[str]:
    tree = Tree(root)
    errors = [f"{name} uses what <{header}> declares, but nothing that it includes leads there."
              for name in sorted(tree.texts) for header in lacks_precompiled(tree, name)]
    return errors + [f"{name} uses {word}, but nothing that it includes leads to {' or '.join(sorted(tree.headers[word]))}."
            for name in sorted(tree.texts) for word in sorted(tree.missing(name))]


PLANTED = {
    "core/words.h": "namespace fsdp {\nstruct Plan {\n  int size() const;\n};\nint total(const Plan& plan);\nenum class Kind { A };\n}\n",
    "core/more.h": '#include "core/words.h"\n#define FSDP_MORE 1\n',
    "core/fine.cpp": '#include "core/more.h"\nint f(const fsdp::Plan& plan) { return total(plan) + FSDP_MORE; }\n',
    "core/own.cpp": "// A Plan.\nstruct Kind {};\nint total(int of);\nint g() { return total(1) + the.total(2); }\n",
    "core/lacks.cpp": '#include "core/fine.h"\nint f() {\n  return total({});\n}\n',
    "core/words_of_others.cpp": '#include <fmt/core.h>\n#include <vector>\nstd::vector<int> f() {\n  return fmt::format("std::map");\n}\n',
    "core/lacks_map.cpp": "int f(const std::map<int, int>& of);\n",
    "core/lacks.h": "struct S {\n  Kind kind;\n};\n",
}
EXPECTED = ["core/lacks_map.cpp uses what <map> declares, but nothing that it includes leads there.",
            "core/lacks.cpp uses total, but nothing that it includes leads to core/words.h.",
            "core/lacks.h uses Kind, but nothing that it includes leads to core/words.h."]


def self_test() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PLANTED.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        found = errors_of(pathlib.Path(folder))
    return [] if found == EXPECTED else [f"Expected {EXPECTED}, found {found}."]


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        problems = self_test()
    else:
        problems = errors_of(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)

#!/usr/bin/env python3
"""Whether files of C++ that CI compiles together have helpers of one name.

    unity_test.py [ROOT]          checks a checkout, and prints one sentence a name
    unity_test.py --self-test     plants two helpers of one name, and expects them to be found

A cold build (cmake/fsdp_precompile.cmake, FSDP_UNITY) includes the files of a target into one, so many at a time in the order of the
list, and their anonymous namespaces become one. A second struct, constant or function of one signature does not compile there, and
compiles everywhere else, so that the first to see it is CI. The same goes for a helper whose name a header has that only another of
these files includes: nobody knows then which is meant. This reads text, in a second. It compares parameters by their text: overloads
may share a name, and what is spelled in two ways is not found.
"""

from __future__ import annotations

import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from includes_test import plain

LISTS = re.compile(r"\b(fsdp_library|fsdp_test|fsdp_test_executable|add_library|add_executable|fsdp_program)\s*\(([^)]*)\)")
UNITY = re.compile(r"\bfsdp_unity\(\s*(\S+)\s+(\d+)\s*\)")
ALONE = re.compile(r"\bset_source_files_properties\(([^)]*)\bSKIP_UNITY_BUILD_INCLUSION ON\b")
NAMESPACE = re.compile(r"\bnamespace\s*([\w:]*)\s*$")
TEMPLATE = r"(?:template\s*<[^;{]*?>\s*)?"
TYPE = re.compile(rf"{TEMPLATE}(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+(\w+)\s*(?:final\s*)?(?::[^:].*)?\{{$", re.DOTALL)
ALIAS = re.compile(r"using\s+(\w+)\s*=\s*(.*)", re.DOTALL)
VALUE = re.compile(r"[\w:<>,\s&*]+?\b([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*(?:=|\{|$)", re.DOTALL)
NAME_BEFORE = re.compile(r"(~?[A-Za-z_]\w*|operator\s*\S+)\s*$")
INCLUDE = re.compile(r'^[ \t]*#include "([^"]+)"', re.MULTILINE)
MACROS = {"TEST", "TEST_F", "TEST_P", "INSTANTIATE_TEST_SUITE_P", "RC_GTEST_PROP", "RC_GTEST_FIXTURE_PROP", "BENCHMARK"}


def heads_of(code: str) -> list[tuple[str, str]]:
    """(namespace, what stands before the braces or the semicolon) of each definition outside of functions and types."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", code, flags=re.MULTILINE)
    scopes, heads, depth, start = [], [], 0, 0
    for sign in re.finditer(r"[{};]", code):
        head = code[start:sign.start()]
        if sign.group() == "{":
            scope = NAMESPACE.search(head) if depth == 0 else None
            if scope:
                scopes.append(scope[1])
                start = sign.end()
                continue
            if depth == 0:
                heads.append(("::".join(scopes), head.strip() + "{"))
            depth += 1
        elif depth > 0:
            depth -= sign.group() == "}"
            start = sign.end() if depth == 0 else start
        else:
            if sign.group() == ";":
                heads.append(("::".join(scopes), head.strip()))
            elif scopes:
                scopes.pop()
            start = sign.end()
    return [(scope, head) for scope, head in heads if head]


def is_internal(scope: str, head: str) -> bool:
    """No other file sees it."""
    return "" in scope.split("::") or re.match(rf"{TEMPLATE}static\b", head) is not None


def split_at_commas(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, sign in enumerate(text):
        depth += (sign in "<([{") - (sign in ">)]}")
        if sign == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [part for part in [*parts, text[start:]] if part.strip()]


def type_of(parameter: str) -> str:
    text = " ".join(parameter.partition("=")[0].split())
    named = re.match(r"(.*[\s&*>])\w+(?:\[.*\])?$", text)
    return re.sub(r"\s*([&*])", r"\1", (named[1] if named else text).strip())


def opens_parameters(head: str) -> int:
    """Where a function's parameters begin; -1 where this is no function."""
    depth = 0
    for i, sign in enumerate(head):
        depth += (sign == "<") - (sign == ">")
        if sign == "=" and depth <= 0:
            return -1
        if sign == "(" and depth <= 0:
            return i
    return -1


def identity(head: str) -> str:
    """What no other definition of the namespace may be; empty where the text is none that matters."""
    if named := TYPE.match(head):
        return named[1]
    if named := ALIAS.match(head):
        return f"{named[1]} = {' '.join(named[2].split())}"
    if re.match(r"(?:using|friend|static_assert|namespace)\b", head):
        return ""
    at = opens_parameters(head)
    if at < 0:
        value = VALUE.match(head)
        return value[1] if value else ""
    name = NAME_BEFORE.search(head[:at])
    if not name or name[1] in MACROS or head[:name.start()].endswith("::"):
        return ""
    depth = end = 0
    for end in range(at, len(head)):
        depth += (head[end] == "(") - (head[end] == ")")
        if depth == 0:
            break
    return f"{name[1]}({', '.join(type_of(parameter) for parameter in split_at_commas(head[at + 1:end]))})"


def batches_of(lists: pathlib.Path, at_once: dict[str, int]) -> list[list[pathlib.Path]]:
    """The files that are compiled together, by a CMakeLists.txt."""
    text = re.sub(r"#[^\n]*", "", lists.read_text(encoding="utf-8"))
    sizes = at_once | {target: int(size) for target, size in UNITY.findall(text)}
    alone = {word for words in ALONE.findall(text) for word in words.split()}
    batches = []
    for kind, words in LISTS.findall(text):
        target, *files = words.split()
        size = sizes.get(target) or sizes.get(f"fsdp_{target}") or sizes.get(kind, 0)
        files = [file if kind != "fsdp_test" or "/" in file else f"{target}/{file}" for file in files if file.endswith(".cpp")]
        files = [file for file in files if file not in alone and (lists.parent / file).is_file()]
        groups = [files]
        if kind == "fsdp_test":
            helpers = [file for file in files if not file.endswith("_test.cpp")]
            tests = [file for file in files if file.endswith("_test.cpp")]
            hostile = [file for file in tests if file.endswith("_hostile_test.cpp")]
            groups = [[file for file in tests if file not in hostile] + helpers, hostile + helpers if hostile else []]
        for group in groups:
            batches += [[lists.parent / file for file in group[i:i + size]] for i in range(0, len(group), size)] if size else []
    return batches


class Tree:
    """The files of a checkout, each read once."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.known: dict[pathlib.Path, list[tuple[str, str]]] = {}
        self.included: dict[pathlib.Path, set[pathlib.Path]] = {}

    def name(self, file: pathlib.Path) -> str:
        return file.relative_to(self.root).as_posix()

    def heads(self, file: pathlib.Path) -> list[tuple[str, str]]:
        if file not in self.known:
            self.known[file] = heads_of(plain(file.read_text(encoding="utf-8", errors="replace")))
        return self.known[file]

    def headers(self, file: pathlib.Path) -> set[pathlib.Path]:
        """Files of the project that a file includes, and that these include."""
        if file not in self.included:
            self.included[file] = set()
            named = INCLUDE.findall(file.read_text(encoding="utf-8", errors="replace"))
            direct = {self.root / name for name in named if (self.root / name).is_file()}
            self.included[file] = direct.union(*(self.headers(header) for header in direct))
        return self.included[file]


def doubles(tree: Tree, batch: list[pathlib.Path]) -> set[str]:
    """Helpers that two files have."""
    errors = set()
    seen: dict[tuple[str, str], tuple[pathlib.Path, str]] = {}
    for file in batch:
        for scope, head in tree.heads(file):
            if not is_internal(scope, head):
                continue
            what = identity(head)
            # An alias may be said twice, as long as it says the same.
            key = (scope, what.partition(" = ")[0])
            other, text = seen.setdefault(key, (file, what))
            if what and other != file and (" = " not in what or text != what):
                errors.add(f"{tree.name(file)} and {tree.name(other)} both define {key[1]}, "
                           "and CI compiles them together: rename one, or share it.")
    return errors


def ambiguous(tree: Tree, batch: list[pathlib.Path]) -> set[str]:
    """Helpers of a file with the name of what a header of another one has."""
    public: dict[tuple[str, str], set[pathlib.Path]] = {}
    for header in set().union(*(tree.headers(file) for file in batch)):
        for scope, head in tree.heads(header):
            what = identity(head).partition(" = ")[0]
            is_forward = head.startswith(("struct ", "class ")) and not head.endswith("{")
            if what and not is_forward:
                public.setdefault((scope, what), set()).add(header)
    errors = set()
    for file in batch:
        for scope, head in tree.heads(file):
            if "" not in scope.split("::"):
                continue
            what = identity(head).partition(" = ")[0]
            around = "::".join(part for part in scope.split("::") if part)
            for header in public.get((around, what), set()) if what else ():
                if header not in tree.headers(file):
                    errors.add(f"{tree.name(file)} and {tree.name(header)} both define {what}, and CI compiles that file together with one "
                               "that includes the header: rename one, or share it.")
    return errors


def errors_of(root: pathlib.Path) -> list[str]:
    targets = root / "cmake/fsdp_targets.cmake"
    sizes = {int(size) for _, size in UNITY.findall(targets.read_text(encoding="utf-8"))}
    if len(sizes) != 1:
        return [f"{targets.relative_to(root)} compiles different numbers of files together: {sorted(sizes)}."]
    at_once = dict.fromkeys(("fsdp_library", "fsdp_test", "fsdp_test_executable"), sizes.pop())
    errors: set[str] = set()
    tree = Tree(root)
    for lists in sorted(root.rglob("CMakeLists.txt")):
        if "build" in lists.relative_to(root).parts:
            continue
        for batch in batches_of(lists, at_once):
            errors |= doubles(tree, batch) | ambiguous(tree, batch)
    return sorted(errors)


PLANTED = {
    "cmake/fsdp_targets.cmake": "function(fsdp_library NAME)\n  fsdp_unity(fsdp_${NAME} 3)\nendfunction()\n",
    "core/CMakeLists.txt": "fsdp_library(core\n  SOURCES\n    a.cpp  # The first.\n    b.cpp\n    c.cpp\n    d.cpp)\n",
    "core/a.cpp": "namespace fsdp {\nnamespace {\nusing Kind = Plan::Kind;\nconstexpr int kMost = 1 << 20;\nstruct Pair {};\n"
                  "int sum(const Pair& of, int n = 2) {\n  if (n) { return 1; }\n  return n;\n}\n}  // namespace\nint f() { return 1; }\n}\n",
    "core/sizes.h": "namespace fsdp {\ninline constexpr int kMebibyte = 1;\nstruct Late;\n}\n",
    "core/b.cpp": "#include \"core/sizes.h\"\nnamespace fsdp {\nnamespace {\nusing Kind = Plan::Kind;\nconst int kMost{3};\nint sum(int n) {\n  return n;\n}\n}\n"
                  "namespace b {\nnamespace {\nstruct Pair {};\n}\n}\nint g() { constexpr int kLocal = 1; return kLocal; }\n}\n",
    "core/c.cpp": "namespace fsdp {\nnamespace {\nenum class Kind { A };\nconst int kMebibyte = 3;\nstruct Late {};\ntemplate <class T>\nT sum(const Pair &of, int number) {\n"
                  "  return of;\n}\n}\nstatic int kLocal = 2;\n}\n",
    "core/d.cpp": "namespace fsdp {\nnamespace {\nstruct Pair {};\nconstexpr int kMost = 2;\nconstexpr int kMebibyte = 2;\n}\n}\n",
}
EXPECTED = [
    "core/b.cpp and core/a.cpp both define kMost, and CI compiles them together: rename one, or share it.",
    "core/c.cpp and core/a.cpp both define Kind, and CI compiles them together: rename one, or share it.",
    "core/c.cpp and core/a.cpp both define sum(const Pair&, int), and CI compiles them together: rename one, or share it.",
    "core/c.cpp and core/sizes.h both define kMebibyte, and CI compiles that file together with one that includes the header: rename one, "
    "or share it.",
]


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

#!/usr/bin/env python3
"""Checks the rules of the tree that a compiler does not know.

    layers_test.py [ROOT]          checks a checkout, and prints one sentence a violation
    layers_test.py --self-test     plants one violation of each rule in a small tree, and expects it to be found

The rules, and where they come from: docs/architecture.md (who may include whom, which folder needs which library) and
CONTRIBUTING.md (length of files and functions, listed sources, words, numbers of decisions).
"""

import ast
import pathlib
import re
import sys
import tempfile

BELOW_RENDER = {"core", "simulator", "text", "planner", "runs", "replay"}
MAY_INCLUDE = {
    "core": set(),
    "simulator": {"core"},
    "text": {"core"},
    "planner": {"core", "simulator", "text"},
    "runs": {"core", "simulator", "text"},
    "replay": {"core", "simulator", "text"},
    "render": BELOW_RENDER,
    "command": BELOW_RENDER | {"render"},
    "executor": {"core"},
    "rehearsal": set(),
    "overlay": set(),
    "gui": BELOW_RENDER | {"render"},
    "tests": BELOW_RENDER | {"render", "command", "executor", "rehearsal", "gui", "tests"},
    "benchmarks": BELOW_RENDER | {"render", "executor", "gui", "benchmarks"},
}
# The rooms of a floor, each with those of its own floor that it may include. Files of the floor itself may include all
# of them, and be included by none.
ROOMS = {
    "core/base": set(),
    "core/model": {"base"},
    "core/cluster": {"base"},
    "core/plan": {"base", "model", "cluster"},
    "core/frameworks/fsdp2": {"base", "model", "cluster", "plan"},
    "core/frameworks/fsdp1": {"base", "model", "cluster", "plan"},
    "core/frameworks/ddp": {"base", "model", "cluster", "plan"},
    "core/frameworks/zero": {"base", "model", "cluster", "plan"},
    "core/frameworks/simple_fsdp": {"base", "model", "cluster", "plan"},
    "core/frameworks": {"base", "model", "cluster", "plan", "frameworks/fsdp2", "frameworks/fsdp1", "frameworks/ddp", "frameworks/zero",
                        "frameworks/simple_fsdp"},
    "core/spec": {"base", "model", "cluster", "plan"},
    "core/report": {"base", "model", "cluster", "plan"},
    "core/formats": {"base", "model", "plan", "spec", "report"},
    "core/library": {"base", "model", "plan", "spec", "formats"},
    "simulator/ops": set(),
    "simulator/allocator": set(),
    "simulator/nccl": set(),
    "simulator/memory": {"ops", "allocator", "nccl"},
    "simulator/time": {"ops", "nccl"},
    "simulator/prepared": {"ops", "allocator", "nccl", "memory", "time"},
    "simulator/curves": {"ops", "allocator", "nccl", "memory", "time", "prepared"},
    "simulator/lengths": {"ops", "allocator", "nccl", "memory", "time", "prepared"},
    "simulator/phases": {"ops", "allocator", "nccl", "memory", "time", "prepared"},
    "planner/space": set(),
    "planner/trainers": {"space"},
    "planner/jobs": {"space", "trainers"},
    "planner/check": {"space", "jobs"},
    "planner/search": {"space", "trainers"},
    "planner/advice": {"space", "trainers", "search"},
    "planner/request": {"space", "trainers", "search", "advice"},
    "executor/memory": set(),
    "executor/network": {"memory"},
    "executor/kernels": {"memory"},
    "executor/options": {"network"},
    "executor/training": {"memory", "network", "kernels"},
    "executor/checkpoint": {"memory", "network", "options", "training"},
    "executor/measured": {"memory", "network", "options", "training"},
    "gui/theme": set(),
    "gui/overlay": set(),
    "gui/state": {"theme", "overlay"},
    "gui/charts": {"theme", "overlay", "state"},
    "gui/panels": {"theme", "overlay", "state", "charts"},
    "gui/window": {"theme", "overlay", "state", "charts", "panels"},
}
# Folders with a namespace of their name.
NAMESPACES = {"simulator", "text", "planner", "runs", "replay", "render", "command", "executor", "gui"}
# A library that only some folders may use, by the first part of its include path.
ONLY_FOR = {
    "CLI": {"command", "executor"},
    "torch": {"executor"},
    "ATen": {"executor"},
    "c10": {"executor"},
    "nccl.h": {"executor", "rehearsal"},
    "cuda_runtime.h": {"executor", "rehearsal"},
}
# Qt is for gui/ only, and not for the geometry of its charts, which is tested without a display.
QT = re.compile(r"Q[A-Z]\w*|Qt\w*")
QT_FREE_IN_GUI = "gui/charts/chart_"
SOURCES = {".cpp", ".h", ".cu"}
TEXTS = SOURCES | {".py", ".sh", ".cmake", ".md", ".txt", ".json", ".yaml", ""}
MAX_LINES = 600
MAX_LINES_OF_A_TEST = 600
MAX_LINES_OF_A_FUNCTION = 70
# Written in pieces, so that this file does not break its own rule.
FORBIDDEN = {
    "a path of somebody's machine": re.compile(r"(?<![\w.])/(?:work|root|home|Users)/|\.\./sha" r"red"),
    "an unfinished place": re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b"),
    "a way of working, not the product": re.compile(r"\bthis ses" r"sion\b|\bissue #?[0-9]+ of\b"),
}


def files_of(root):
    """Every file of ours that is text, in the order of its name; build trees and hidden tool folders left out."""
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        hidden = any(p.startswith(".") and p != ".ci" for p in parts[:-1])
        if hidden or parts[0] in {"build", "LICENSE", ".git"} or "__pycache__" in parts or path.is_symlink():
            continue
        if path.is_file() and path.suffix in TEXTS:
            yield path


def include_errors(name, text):
    folder = name.split("/")[0]
    if folder not in MAY_INCLUDE:
        return
    allowed = MAY_INCLUDE[folder]
    for included in re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.M):
        other = included.split("/")[0]
        if "/" not in included:
            yield f'{name} includes "{included}", but includes of ours start at the root, as in "{folder}/{included}".'
        elif other == folder:
            yield from room_errors(name, included)
        elif other in MAY_INCLUDE and other != folder and other not in allowed:
            yield f"{name} includes {other}/, but {folder}/ may only include {', '.join(sorted(allowed)) or 'nothing'}."
    for library in re.findall(r'^\s*#\s*include\s*[<"]([^/">]+)', text, re.M):
        if folder not in {"tests", "benchmarks"} and folder not in ONLY_FOR.get(library, {folder}):
            yield f"{name} includes {library}, but only {', '.join(sorted(ONLY_FOR[library]))}/ may use that library."
        if QT.fullmatch(library) and folder not in {"tests", "benchmarks"} and (
                folder != "gui" or name.startswith(QT_FREE_IN_GUI)):
            yield f"{name} includes {library}, but Qt is for gui/ only, and not for {QT_FREE_IN_GUI}*."
    if name.endswith(".h") and re.search(r"#\s*include\s*<nlohmann/", text):
        yield f"{name} includes nlohmann/json, which is slow to compile and belongs in .cpp files only."


def room_errors(name, included):
    """A file of a room that includes another room of its floor. Headers that a build makes lie on the floor itself."""
    room, other = (str(pathlib.PurePosixPath(each).parent) for each in (name, included))
    if room == other or room not in ROOMS or included == "core/version.h":
        return
    inside = other.partition("/")[2]
    if inside not in ROOMS[room]:
        allowed = ", ".join(sorted(ROOMS[room])) or "no other room of its floor"
        yield f"{name} includes {included}, but {room}/ may only include {allowed}."


def namespace_errors(name, text):
    """A name tells its folder: planner::search() is not a neighbor of render::to_json()."""
    folder = name.partition("/")[0]
    for found in re.findall(r"^namespace (fsdp::[\w:]+) \{", text, re.M) if folder in NAMESPACES else ():
        if not f"{found}::".startswith(f"fsdp::{folder}::"):
            yield f"{name} declares names in {found}, but {folder}/ has the namespace fsdp::{folder}."


def length_errors(name, text):
    limit = MAX_LINES_OF_A_TEST if name.startswith("tests/") else MAX_LINES
    lines = text.count("\n")
    if pathlib.Path(name).suffix in SOURCES | {".py", ".cmake"} and lines > limit:
        yield f"{name} has {lines} lines, but {limit} is the limit: is there a second subject in it?"


# What hides braces in C++: comments, and literals, which may be raw. A digit before an apostrophe is one of a number.
HIDES = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^\s()]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
NO_FUNCTION = re.compile(r"\b(?:namespace|class|struct|union|enum|concept)\b|=")


def functions_of_cpp(text):
    """The first line and the number of lines of each function that has a body, by braces. A function inside another one, as a
    lambda, is a part of that."""
    code = HIDES.sub(lambda hidden: re.sub(r"[^\n]", " ", hidden.group()), text)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda line: re.sub(r"[^\n]", " ", line.group()), code, flags=re.M)
    # A macro that stands for a whole definition has no semicolon.
    code = re.sub(r"^[A-Z][A-Z0-9_]*\([^;{}\n]*\)[ \t]*$", lambda line: " " * len(line.group()), code, flags=re.M)
    is_function = False
    depth, parentheses, head = 0, 0, 0  # Depth of braces inside a function; where what stands before its body begins.
    for sign in re.finditer(r"[{}();]", code):
        at = sign.start()
        if sign.group() in "()":
            parentheses += 1 if sign.group() == "(" else -1
        elif depth > 0:
            depth += {"{": 1, "}": -1}.get(sign.group(), 0)
            # A member that is initialized in braces stands between the head and the body.
            if depth == 0 and not re.match(r"\s*[,{]", code[at + 1:]):
                if is_function:
                    begin = head + len(code[head:]) - len(code[head:].lstrip())
                    yield code.count("\n", 0, begin) + 1, code.count("\n", begin, at) + 1
                head = at + 1
        elif sign.group() == "{" and parentheses == 0:
            words = re.sub(r"\boperator\s*(?:\(\)|[^\s\w(]+)|[<>=!]=", "", code[head:at])
            while (plain := re.sub(r"<[^<>]*>", "", words)) != words:  # The arguments of templates.
                words = plain
            is_function = "(" in words and not NO_FUNCTION.search(words.partition("(")[0])
            if is_function or "=" in words or re.search(r"\benum\b", words):
                depth = 1
            else:
                head = at + 1
        elif sign.group() in "};" and parentheses == 0:
            head = at + 1


def functions_of_python(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.end_lineno - node.lineno + 1


def function_errors(name, text):
    suffix = pathlib.Path(name).suffix
    is_python = suffix == ".py" or text.startswith("#!/usr/bin/env python3")
    functions = functions_of_cpp if suffix in SOURCES else functions_of_python if is_python else None
    for line, lines in functions(text) if functions else ():
        if lines > MAX_LINES_OF_A_FUNCTION:
            yield f"{name}:{line} begins a function of {lines} lines, but {MAX_LINES_OF_A_FUNCTION} is the limit."


def word_errors(name, text):
    for number, line in enumerate(text.split("\n"), start=1):
        for what, pattern in FORBIDDEN.items():
            found = pattern.search(line)
            if found:
                yield f'{name}:{number} has "{found.group()}", {what}, which does not belong in the project.'


def listing_errors(root, name):
    """A source that no CMakeLists.txt names is never compiled, and a test in it never runs."""
    if name.split("/")[0] not in MAY_INCLUDE or not name.endswith(".cpp"):
        return
    path = pathlib.PurePosixPath(name)
    for folder in path.parents:
        lists = root / folder / "CMakeLists.txt"
        if lists.is_file():
            inside = str(path.relative_to(folder))
            # The tests are declared by folder, fuzz targets by the name without its ending.
            if re.search(rf"(?<![\w/])(?:{re.escape(inside)}|{re.escape(path.name)}|{re.escape(path.stem)})(?!\w)",
                         lists.read_text()):
                return
            yield f"{name} is not listed in {folder}/CMakeLists.txt, so it is never compiled."
            return


def decision_errors(root):
    """Two decisions with one number cannot be told apart where one is cited."""
    seen = {}
    for path in sorted((root / "docs/decisions").glob("[0-9]*.md")):
        number = path.name[:4]
        if number in seen:
            yield f"{path.relative_to(root).as_posix()} has the number {number}, which is that of {seen[number]}."
        seen.setdefault(number, path.name)


def errors_of(root):
    yield from decision_errors(root)
    for path in files_of(root):
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix in SOURCES:
            yield from include_errors(name, text)
            yield from namespace_errors(name, text)
        yield from length_errors(name, text)
        yield from function_errors(name, text)
        yield from word_errors(name, text)
        yield from listing_errors(root, name)


NEWLINE = "\n"
PLANTED = [
    ("core/CMakeLists.txt", "sources a.cpp b.cpp c.h d.cpp\n", None),
    ("command/CMakeLists.txt", "sources fine.cpp\n", None),
    ("planner/CMakeLists.txt", "sources remedies_of_plan.cpp\n", None),
    ("command/fine.cpp", '#include <CLI/CLI.hpp>\n#include "core/a.h"\n#include "simulator/b.h"\n', None),
    ("core/a.cpp", '#include "simulator/b.h"\n', "core/a.cpp includes simulator/, but core/ may only include nothing."),
    ("simulator/c.h", '#include "planner/d.h"\n', "may only include core."),
    ("core/b.cpp", '#include "a.h"\n', 'as in "core/a.h".'),
    ("core/d.cpp", "#include <CLI/CLI.hpp>\n", "only command, executor/ may use that library."),
    ("core/c.h", "#include <nlohmann/json.hpp>\n", "belongs in .cpp files only."),
    ("core/base/low.h", '#include "core/plan/plan.h"\n', "core/base/ may only include no other room of its floor."),
    ("core/plan/high.h", '#include "core/model/model.h"\n#include "core/version.h"\n', None),
    ("planner/space/low.h", '#include "planner/search/search.h"\n', "planner/space/ may only include no other room of its floor."),
    ("planner/search/low.h", '#include "planner/advice/remedies.h"\n#include "planner/space/space.h"\n',
     "planner/search/low.h includes planner/advice/remedies.h, but planner/search/ may only include space, trainers."),
    ("planner/advice/low.h", '#include "planner/request/fit.h"\n', "planner/advice/ may only include search, space, trainers."),
    ("gui/charts/chart_low.h", '#include "gui/window/main_window.h"\n', "may only include overlay, state, theme."),
    ("runs/typed.h", '#include "command/cli_options.h"\n', "runs/typed.h includes command/, but runs/ may only include"),
    ("render/lost.h", "namespace fsdp::planner {\n}\n", "render/lost.h declares names in fsdp::planner, but render/ has the namespace fsdp::render."),
    ("render/home.h", "namespace fsdp::render {\nnamespace {\n}\n}\n", None),
    ("core/forgotten.cpp", "\n", "core/forgotten.cpp is not listed in core/CMakeLists.txt"),
    ("core/long.h", "\n" * (MAX_LINES + 1), "core/long.h has 601 lines, but 600 is the limit"),
    ("core/just_right.h", "\n" * MAX_LINES, None),
    ("tests/long.h", "\n" * (MAX_LINES_OF_A_TEST + 1), "tests/long.h has 601 lines, but 600 is the limit"),
    ("docs/decisions/0001-one.md", "# 0001 One\n", None),
    ("docs/decisions/0001-other.md", "# 0001 Other\n", "docs/decisions/0001-other.md has the number 0001, which is that of 0001-one.md."),
    ("docs/place.md", "see /ho" "me/me/model.json\n", "docs/place.md:1 has \"/ho" "me/\", a path of somebody's machine"),
    ("planner/advice/remedies_of_plan.cpp", '#include "command/cli_options.h"\n', "planner/advice/remedies_of_plan.cpp includes command/, but planner/ may only include"),
    ("gui/state/typed.h", '#include "command/cli_options.h"\n', "gui/state/typed.h includes command/, but gui/ may only include"),
    ("gui/window.h", '#include <QtWidgets/QWidget>\n#include <QColor>\n#include "planner/search/search.h"\n', None),
    ("gui/charts/chart_axis.h", "#include <QRectF>\n", "gui/charts/chart_axis.h includes QRectF, but Qt is for gui/ only"),
    ("planner/window.h", "#include <QtCore/QString>\n", "planner/window.h includes QtCore, but Qt is for gui/ only"),
    ("gui/view.h", '#include "executor/training/trainer.h"\n', "gui/view.h includes executor/, but gui/ may only include"),
    ("core/later.h", "// TO" "DO\n", "core/later.h:1 has \"TO" "DO\", an unfinished place"),
    ("core/function.h", f"#define X {{\n/* {{ */ inline int f(char c = '{{') {{\n  auto g = [] {{ return R\"({{)\"; }};\n{NEWLINE * (MAX_LINES_OF_A_FUNCTION - 2)}}}\n",
     "core/function.h:2 begins a function of 71 lines, but 70 is the limit."),
    ("core/table.h", f"constexpr int kTable[] = {{\n{NEWLINE * MAX_LINES_OF_A_FUNCTION}}};\nstruct S {{\n{NEWLINE * MAX_LINES_OF_A_FUNCTION}}};\n"
     f"enum class E {{ A }};\nnamespace n {{\nclass T {{\n  T() : a_{{1}} {{}}\n{NEWLINE * MAX_LINES_OF_A_FUNCTION}}};\n}}\n", None),
    ("core/constructor.h", f"struct S {{\n  S(int a)\n      : a_{{a}}, b_(a) {{\n{NEWLINE * (MAX_LINES_OF_A_FUNCTION - 2)}  }}\n}};\n",
     "core/constructor.h:2 begins a function of 71 lines"),
    ("core/linked.h", f"template <class T, std::enable_if_t<(T() <= 1)>>\nextern \"C\" bool operator==(T a, T b) {{\n{NEWLINE * 68}}}\n",
     "core/linked.h:1 begins a function of 71 lines"),
    ("core/macros.h", "FSDP_STUB(a)\n" * MAX_LINES_OF_A_FUNCTION + "int f() {\n}\n", None),
    ("python/long.py", f"def f():\n{NEWLINE * (MAX_LINES_OF_A_FUNCTION - 1)}    return 1\n", "python/long.py:1 begins a function of 71 lines"),
    ("python/short.py", f"def f():\n{NEWLINE * (MAX_LINES_OF_A_FUNCTION - 2)}    return 1\n", None),
    ("build/dev/generated.h", "// TO" "DO\n", None),
]


def self_test():
    """Returns what is wrong with this test: a planted violation that is not found, or a finding that is not planted."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text, _ in PLANTED:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        found = list(errors_of(root))
    expected = [sentence for _, _, sentence in PLANTED if sentence]
    missed = [s for s in expected if not any(s in line for line in found)]
    invented = [line for line in found if not any(s in line for s in expected)]
    return [f"Not found: {s}" for s in missed] + [f"Found, but not planted: {line}" for line in invented]


def main(arguments):
    if arguments == ["--self-test"]:
        errors = self_test()
    else:
        root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
        errors = list(errors_of(root))
    for line in errors:
        print(line)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

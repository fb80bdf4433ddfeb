#!/usr/bin/env python3
"""How often the product asks which framework runs, by its name.

    frameworks_test.py [ROOT]        checks a checkout, and prints one sentence a place
    frameworks_test.py --self-test   plants questions in a small tree, and expects them to be found

A framework is a folder of core/frameworks/ and a row of each table (docs/decisions/0118-a-framework-answers-by-a-row-of-facts.md). Everybody
else asks for a fact, `traits_of(plan)`, or for what a layout or a schedule holds: a new framework answers those by its row. A question by
name has to be found and thought about again for each new framework.

A row of a table, which begins with its framework, is no question. Neither is a comment.
"""

import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from layers_test import HIDES, SOURCES

PRODUCT = ["core", "simulator", "text", "planner", "runs", "replay", "render", "command", "executor", "rehearsal", "overlay", "gui"]
FOLDERS = "core/frameworks/"
# At most so many lines, in all of the product.
MOST_QUESTIONS = 10
QUESTION = re.compile(r"\bFramework::[A-Z]\w*|(?<![.>\w])\bis_(?:zero3?|flat|simple_fsdp|replicated)\((?!\))")
ROW = re.compile(r"^\s*\w*\s*\{\s*(?:\.framework = )?Framework::[A-Z]\w*\s*[,}]|^\s*\.framework = Framework::[A-Z]\w*,")
# `} else if (zero3)` after an `if (flat)`: a framework that is in none of the branches is forgotten in silence.
NAME = r"(?:is_)?(?:ddp|zero3?|flat|fsdp[12]|simple_fsdp|replicated)_?"
CHAIN = re.compile(rf"\bif \(!?{NAME}\b[^{{}};]*\{{[^{{}}]*\}} else if \(!?{NAME}\b")


def without_comments(text):
    """Comments are blank, and every line stays where it is."""
    return HIDES.sub(lambda hidden: hidden.group() if hidden.group()[0] in "\"'R" else re.sub(r"[^\n]", " ", hidden.group()), text)


def questions_of(root):
    """[(place, what stands there)] of all lines that ask by name, and of all chains."""
    lines, chains = [], []
    for folder in PRODUCT:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in SOURCES or name.startswith(FOLDERS):
                continue
            code = without_comments(path.read_text(encoding="utf-8", errors="replace"))
            for number, line in enumerate(code.split("\n"), start=1):
                if QUESTION.search(line) and not ROW.match(line):
                    lines.append((f"{name}:{number}", line.strip()))
            chains += [(f"{name}:{code.count(chr(10), 0, chain.start()) + 1}", " ".join(chain.group().split()))
                       for chain in CHAIN.finditer(code)]
    return lines, chains


def errors_of(root, most=MOST_QUESTIONS):
    lines, chains = questions_of(root)
    errors = [f"{place} tells frameworks apart in a chain, `{what}`: let each have a row, or ask for a fact." for place, what in chains]
    if len(lines) > most:
        errors += [f"{place} asks for a framework by its name: {what}" for place, what in lines]
        errors.append(f"{len(lines)} lines ask which framework runs, and {most} is the limit: ask for a fact of core/plan/framework_traits.h.")
    return errors


PLANTED = {
    "core/frameworks/ddp/ddp.cpp": "if (plan.runtime.framework == Framework::Ddp) return;\n",
    "planner/search_traits.h": "    SearchTraits{.framework = Framework::Ddp},\n    {Framework::Zero1, 2},\n  // Of Framework::Zero2.\n",
    "planner/layout.cpp": "bool is_flat() const { return layout_.is_flat(); }\n",
    "planner/choice.cpp": "\n  if (is_flat(space.base)) return;\n",
    "render/plan_code.cpp": "const bool is_ddp = plan.runtime.framework == Framework::Ddp;\nswitch (framework) {\n  case Framework::Zero3:\n",
    "simulator/walk.cpp": "  if (zero3_) {\n    drop();\n  } else if (zero_) {\n    keep();\n  }\n",
}
FOUND = ["planner/choice.cpp:2", "render/plan_code.cpp:1", "render/plan_code.cpp:3"]


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in PLANTED.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        lines, chains = questions_of(root)
        problems = []
        if [place for place, _ in lines] != FOUND:
            problems.append(f"Expected questions at {FOUND}, found {lines}.")
        if [place for place, _ in chains] != ["simulator/walk.cpp:1"]:
            problems.append(f"Expected one chain, found {chains}.")
        if len(errors_of(root, most=2)) != 5 or len(errors_of(root, most=3)) != 1:
            problems.append("Expected an error for each question above the limit alone.")
        return problems


def main():
    if sys.argv[1:] == ["--self-test"]:
        errors = self_test()
    else:
        errors = errors_of(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1])
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

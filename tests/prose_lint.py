#!/usr/bin/env python3
"""Finds phrases in comments and pages that a reader stumbles over. CONTRIBUTING.md ("Plain English") has the rules.

    prose_lint.py [ROOT]          checks the tracked files of a checkout, and prints one line a place
    prose_lint.py --self-test     plants each phrase in each kind of file, and expects it to be found

Exit: 0 nothing found, 1 something found.
"""

from __future__ import annotations

import io
import pathlib
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Callable, Iterator

# Places, not times.
SPATIAL = re.compile(r"(?:leaves?|leaving|left|lags?) (?:\w+ ){0,4}?behind|behind (?:the scenes|a NAT|a proxy|a firewall|an IOMMU|one switch|one PCIe switch|a window|another window)"
                     r"|drawn (?:behind|in front of)")
RULES = (
    (re.compile(r"(?:^|(?<=[.:;!?] )|(?<=[.:;!?]\) ))Of (?=\S)"), 'a sentence opens with "Of": write "For", or start with the subject'),
    (re.compile(r"\b[Bb]ehind\b"), '"behind": write "after", or "next" for addresses'),
    (re.compile(r"\b[Ii]n front of\b"), '"in front of": write "before"'),
    (re.compile(r"\b(?:[Nn]one|[Nn]othing) otherwise\b"), 'an empty case: write "Defaults to ..."'),
)

Paragraph = list[tuple[int, str]]  # Lines of the file, counted from 1, each with its text.
BREAK = (-1, -1, "")  # Between comments: the next one begins a paragraph, as one does that stands after code.

CPP = re.compile(r'R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|(?P<comment>//[^\n]*)|/\*.*?\*/', re.DOTALL)


def grouped(comments: list[tuple[int, int, str]]) -> Iterator[Paragraph]:
    """Comments, each with its line and column: those below one another at one column are one paragraph, up to an empty one."""
    paragraph: Paragraph = []
    last = (-2, -1)
    for line, column, text in comments:
        if (line - 1, column) != last or not text or re.match(r"[*-] ", text):
            if paragraph:
                yield paragraph
            paragraph = []
        if text:
            paragraph.append((line, text))
        last = (line, column)
    if paragraph:
        yield paragraph


def of_cpp(text: str) -> Iterator[Paragraph]:
    found = []
    for match in CPP.finditer(text):
        if match["comment"]:
            begin = match.start()
            column = begin - text.rfind("\n", 0, begin)
            found += [BREAK] if text[begin - column + 1:begin].strip() else []
            found.append((text.count("\n", 0, begin) + 1, column, match["comment"].lstrip("/<").strip()))
    yield from grouped(found)


def of_python(text: str) -> Iterator[Paragraph]:
    found = []
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            found += [BREAK] if token.line[:token.start[1]].strip() else []
            found.append((*token.start, token.string.lstrip("#!").strip()))
        elif token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):  # A docstring.
            if token.start[1] == 0 and "__doc__" in text:  # The program prints it.
                continue
            lines = token.string.strip("\"'").split("\n")
            found.append(BREAK)
            found += [(token.start[0] + i, -1, line.strip()) for i, line in enumerate(lines)]
            found.append(BREAK)
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type
    yield from grouped(found)


def of_script(text: str) -> Iterator[Paragraph]:
    lines = ((i + 1, re.search(r"(?:^|\s)#(?!!)\s?(.*)", line)) for i, line in enumerate(text.split("\n")))
    yield from grouped([comment for i, match in lines if match
                        for comment in ([BREAK] if match.string[:match.start()].strip() else []) + [(i, match.start(1), match[1].strip())]])


def of_page(text: str) -> Iterator[Paragraph]:
    """Without code, and without what a script writes: its words are the script's."""
    found: list[tuple[int, int, str]] = []
    is_code = is_written = False
    for i, line in enumerate(text.split("\n")):
        stripped = line.strip()
        if stripped.startswith("```"):
            is_code = not is_code
        if stripped.startswith("<!--"):
            is_written = ": made by " in stripped
        if is_code or is_written or stripped.startswith(("```", "<!--")):
            found.append(BREAK)
        elif stripped.startswith("|"):
            for cell in stripped.split("|"):
                found += [BREAK, (i + 1, 0, cell.strip())]
        elif head := re.match(r"(?:#+|[*-]|\d+\.) ", stripped):
            found += [BREAK, (i + 1, 0, stripped[head.end():])]
        else:
            found.append((i + 1, 0, stripped) if stripped else BREAK)
    yield from grouped(found)


def reader_of(name: str, text: str) -> Callable[[str], Iterator[Paragraph]] | None:
    suffix = pathlib.PurePath(name).suffix
    if suffix in (".h", ".cpp", ".cu", ".c"):
        return of_cpp
    if suffix == ".py" or (not suffix and text.startswith("#!/usr/bin/env python")):
        return of_python
    if suffix == ".md":
        return of_page
    if suffix in (".sh", ".cmake") or name.endswith("CMakeLists.txt") or text.startswith("#!/usr/bin/env bash"):
        return of_script
    return None


def plain(text: str) -> str:
    """Without code and quotations, whose words are not ours; as long as it was."""
    return re.sub(r'`[^`]*`|"[^"]*"', lambda match: "x" * len(match[0]), text)


def found_in(name: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Line, what is wrong, and the words around it."""
    reader = reader_of(name, text)
    for paragraph in reader(text) if reader else ():
        whole = " ".join(words for _, words in paragraph)
        bare = plain(whole)
        spatial = [match.span() for match in SPATIAL.finditer(bare)]
        for pattern, sentence in RULES:
            for match in pattern.finditer(bare):
                if any(begin <= match.start() < end for begin, end in spatial):
                    continue
                at = 0
                line = paragraph[0][0]
                for number, words in paragraph:
                    if at <= match.start():
                        line = number
                    at += len(words) + 1
                yield line, sentence, whole[max(0, match.start() - 30):match.end() + 50]


def check(root: pathlib.Path, names: list[str]) -> list[str]:
    problems = []
    for name in names:
        if name == "tests/prose_lint.py":
            continue
        try:
            text = (root / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        problems += [f"{name}:{line}: {sentence}: ...{words}..." for line, sentence, words in found_in(name, text)]
    return problems


PLANTED = {
    "a.h": ("/// Bytes.\n/// {}\nint a;\n", 2),
    "b.cpp": ('int b;  // It is so\n        // and {}\nauto c = "Of a // string";\n', 2),
    "c.py": ('"""Says.\n\n{}\n"""\na = 1  # Of\n', 3),
    "d.py": ("a = 1\n# {}\n", 2),
    "e.md": ("# Title\n\n* point\n* {}\n\n```\nOf a block\n```\n", 4),
    "k.md": ("<!-- a: made by b -->\nOf a row.\n<!-- end of a -->\nIt is\n{}\n", 5),
    "f.md": ("| a | b |\n|---|---|\n| x | {} |\n", 3),
    "g.cmake": ("# {}\nset(a)\n", 1),
    "scripts/h": ("#!/usr/bin/env bash\n# {}\n", 2),
}
WRONG = ("So. Of a unit: its bytes.", "It runs behind the forward.", "It waits in front of\n  it.", "Its bytes; none otherwise.")
RIGHT = ("For a unit: its bytes.", "It leaves nothing behind.", "Its `behind`, and \"Of a\".", "Made of Ofen.")


def self_test() -> list[str]:
    failures = []
    with tempfile.TemporaryDirectory() as made:
        root = pathlib.Path(made)
        (root / "scripts").mkdir()
        for name, (frame, line) in PLANTED.items():
            for words in WRONG + RIGHT:
                (root / name).write_text(frame.format(words.replace("\n  ", " ")), encoding="utf-8")
                problems = check(root, [name])
                wanted = [f"{name}:{line}:"] if words in WRONG else []
                if [problem.split(" ")[0] for problem in problems] != wanted:
                    failures.append(f"{name} with {words!r}: {problems}")
        (root / "i.h").write_text("// It is freed in\n// front of it. So\n// it is. Of it:\n", encoding="utf-8")
        lines = sorted(problem.split(" ")[0] for problem in check(root, ["i.h"]))
        if lines != ["i.h:1:", "i.h:3:"]:
            failures.append(f"Phrases over lines: {lines}")
    return failures


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        problems = self_test()
    else:
        root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
        listed = subprocess.run(["git", "-C", str(root), "ls-files"], capture_output=True, text=True, check=True)
        problems = check(root, listed.stdout.splitlines())
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

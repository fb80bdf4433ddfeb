#!/usr/bin/env python3
"""Whether the modules of python/ import each other in circles, at their top or inside a function.

    python_imports_test.py [ROOT]       checks a checkout, and prints one sentence a circle
    python_imports_test.py --self-test  plants a circle, and expects it to be found

An import below `if TYPE_CHECKING:` counts, too: a circle of types says as much about who knows whom. A module that starts others by name
(`-m package.module`) does not import them.
"""

from __future__ import annotations

import ast
import pathlib
import sys
import tempfile


def module_of(path: pathlib.Path, root: pathlib.Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(path: pathlib.Path, module: str, known: set[str]) -> set[str]:
    """The modules of ours that a file imports."""
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from package import module` or `from module import name`.
            names.update(f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names)
    return (names & known) - {module}


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules in which each reaches each other, sorted: Tarjan's strongly connected components of more than one."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for other in sorted(imports[module]):
            if other not in numbers:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], numbers[other])
        if lowest[module] == numbers[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(imports):
        if module not in numbers:
            visit(module)
    return sorted(found)


def check(root: pathlib.Path) -> list[str]:
    files = {module_of(path, root): path for path in sorted(root.rglob("*.py"))}
    known = set(files)
    imports = {module: imported_by(path, module, known) for module, path in files.items()}
    return [f"python/: {', '.join(circle)} import each other in a circle." for circle in circles(imports)]


def self_test() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "p").mkdir()
        (root / "p" / "__init__.py").write_text("")
        (root / "p" / "a.py").write_text("from p import b\n")
        (root / "p" / "b.py").write_text("def late():\n    from .c import name\n")
        (root / "p" / "c.py").write_text("import os\n")
        if check(root):
            return [f"A folder without a circle has one: {check(root)}"]
        (root / "p" / "c.py").write_text("TYPE_CHECKING = False\nif TYPE_CHECKING:\n    import p.a\n")
        if check(root) != ["python/: p.a, p.b, p.c import each other in a circle."]:
            return [f"The planted circle is not found: {check(root)}"]
    return []


def main() -> int:
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        problems = self_test()
    else:
        problems = check(pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).resolve().parents[1]) / "python")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

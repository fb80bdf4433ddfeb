#!/usr/bin/env python3
"""Whatever a plan, a captured model or a file is called, an export says the same to the program that reads it: Python with the same
syntax tree, YAML and TOML with the same keys, text without anything that a terminal would obey.

usage: hostile_exports_test.py PROJECT_ROOT BINARY
"""

import ast
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT, BINARY = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
LIMIT_SECONDS = 900  # However busy a machine is, only what hangs takes as long.
CAPTURE = (ROOT / "tests/golden/captured/small_decoder.json").read_text(encoding="utf-8")
RUN = '__import__("os").system("touch PWNED")'

NAMES = (
    f'M"""\nimport os\n{RUN}\n"""',
    f'M"\n{RUN}\n"',
    f"{{{RUN}}}",
    "M\nuse_cpu: true\nevil: 1\n",
    "M\r\nevil = 1\n[evil]\n",
    "\x1b]0;owned\x07\x9b31m\u202e\u2028x",
    "M\\",
    'M\\"""\\',
    'M"',
    "'; touch PWNED; '$(touch PWNED)`touch PWNED`",
    "M: [}, &a *b !!c # d",
    "\x00\ufffe\uffff\U0001f600",
)
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
PYTHON = ("fsdp2", "fsdp1", "ddp", "trainer")
CLASS, MODULE, MODEL = "LlamaDecoderLayer", "layers", "small"


def run(folder: pathlib.Path, *words: str | pathlib.Path) -> subprocess.CompletedProcess:
    environment = {"PATH": "/usr/bin:/bin", "FSDP_PLAN_MODEL_SPECS": str(ROOT / "model_specs")}
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, cwd=folder, env=environment, timeout=LIMIT_SECONDS, check=False)


class Plain(ast.NodeTransformer):
    """Literals with the plain name again, and docstrings with nothing."""

    def __init__(self, name: str, plain: str) -> None:
        self.name, self.plain = name, plain

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str):
            return ast.Constant(node.value.replace(self.name, self.plain))
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        if isinstance(node.value, ast.Constant):
            return ast.Expr(ast.Constant("docstring"))
        return self.generic_visit(node)


class HostileNames(unittest.TestCase):
    maxDiff = 2000

    def setUp(self) -> None:
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)

    def planned(self, replaced: str, name: str, *choices: str) -> pathlib.Path | None:
        """A plan of the captured model in which `replaced` is called `name`; nothing where such a name is refused."""
        model, plan = self.folder / "model.json", self.folder / "plan.json"
        written = json.dumps(name)[1:-1]
        keys = {MODEL: r'"name": "small"', CLASS: CLASS, MODULE: r"model\.layers"}
        news = {MODEL: f'"name": "{written}"', CLASS: written, MODULE: f"model.{written}"}
        model.write_text(re.sub(keys[replaced], lambda _: news[replaced], CAPTURE), encoding="utf-8")
        done = run(self.folder, model, "--gpus", "4", "--mem", "24G", *choices, "--force", "--quiet", "-o", plan)
        self.assertIn(done.returncode, (0, 2), done.stderr)
        self.assertIsNone(OBEYED.search(done.stderr.decode().replace("\t", "")), done.stderr)
        is_taken = done.returncode == 0 and run(self.folder, "simulate", plan, "--json").returncode == 0
        return plan if is_taken else None

    def exported(self, plan: pathlib.Path, form: str) -> str:
        near = ("--nearest", plan.with_name("near.json")) if form in ("accelerate", "trainer", "torchtitan") else ()
        done = run(plan.parent, "export", plan, "--to", form, *near, "--force")
        self.assertEqual(done.returncode, 0, done.stderr)
        for text in (done.stdout.decode(), done.stderr.decode()):
            self.assertIsNone(OBEYED.search(text.replace("\r\n", "\n")), f"{form}: {text!r}")
        return done.stdout.decode()

    def expect_same_program(self, form: str, hostile: str, plain: str, name: str, replaced: str) -> None:
        if form in PYTHON:
            trees = [ast.dump(Plain(name, replaced).visit(ast.parse(text))) for text in (hostile, plain)]
            self.assertEqual(*trees)
            return
        # What is no comment is the same in every letter, but for a name in quotes; its escapes are those of JSON.
        text_of = {quoted: json.loads(quoted) for quoted in re.findall(r'"(?:[^"\\]|\\.)*"', hostile)}
        for quoted in (quoted for quoted, text in text_of.items() if text == name):
            hostile = hostile.replace(quoted, replaced)
        self.assertEqual(*([line for line in text.split("\n") if not line.startswith("#")] for text in (hostile, plain)))

    def expect_harmless(self, replaced: str, forms: dict[str, tuple[str, ...]]) -> None:
        for form, choices in forms.items():
            plain = self.exported(self.planned(replaced, replaced, *choices), form)
            taken = 0
            for name in NAMES:
                plan = self.planned(replaced, name, *choices)
                if plan is None or (replaced == CLASS and "," in name):  # What lists classes with commas is refused.
                    continue
                taken += 1
                with self.subTest(form=form, name=name):
                    self.expect_same_program(form, self.exported(plan, form), plain, name, replaced)
            self.assertGreater(taken, 0, f"{form}: all names are refused")

    FORMS = {"fsdp2": ("--wrap", "blocks"), "fsdp1": ("--runtime", "fsdp1", "--wrap", "blocks"), "ddp": ("--runtime", "ddp"),
             "trainer": ("--wrap", "blocks"), "accelerate": ("--wrap", "blocks"), "chrome": (), "csv": ()}  # fmt: skip

    def test_model_names_are_harmless(self) -> None:
        self.expect_harmless(MODEL, {form: words for form, words in self.FORMS.items() if form not in ("chrome", "csv")})

    def test_module_names_are_harmless(self) -> None:
        self.expect_harmless(MODULE, {form: self.FORMS[form] for form in ("fsdp2", "fsdp1", "trainer", "accelerate")})

    def test_class_names_are_harmless(self) -> None:
        self.expect_harmless(CLASS, {form: self.FORMS[form] for form in ("trainer", "accelerate")})

    def test_names_in_a_plan_are_harmless(self) -> None:
        plan = self.planned(MODEL, MODEL, "--wrap", "blocks")
        read = json.loads(plan.read_text(encoding="utf-8"))
        for form in ("fsdp2", "trainer", "accelerate"):
            plain = self.exported(plan, form)
            for name in NAMES:
                for runtime in ({"allocator_settings": f"expandable_segments:True,{name}"}, {"allocator_settings": name}):
                    changed = {**read, "runtime": {**read["runtime"], **runtime}}
                    evil = self.folder / "evil.json"
                    evil.write_text(json.dumps(changed), encoding="utf-8")
                    if run(self.folder, "simulate", evil).returncode == 2:
                        continue
                    with self.subTest(form=form, name=name):
                        self.expect_same_program(form, self.exported(evil, form), plain, name, "plan")

    def test_file_names_are_harmless(self) -> None:
        plan = self.planned(MODEL, MODEL, "--wrap", "blocks")
        for form in ("fsdp2", "trainer", "accelerate"):
            plain = self.exported(plan, form)
            for name in (*NAMES[:-1], "\ufffe\uffff", b"\xff\xfe".decode(errors="surrogateescape")):
                if "/" in name:
                    continue
                evil = self.folder / f"{name}.json"
                os.link(plan, evil)
                with self.subTest(form=form, name=name):
                    self.expect_same_program(form, self.exported(evil, form), plain, name, "plan")
                evil.unlink()

    def test_names_in_toml_and_csv_are_harmless(self) -> None:
        words = ("llama3_1_8b", "--gpu", "H100 SXM", "--gpus", "8", "--flavor", "torchtitan", "--seq", "2048", "--force", "--quiet")
        plan = self.folder / "plan.json"
        done = run(self.folder, *words, "-o", plan)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in NAMES[:-1]:
            evil = self.folder / f"{name}.json"
            os.link(plan, evil)
            with self.subTest(name=name):
                done = run(self.folder, "export", evil, "--to", "torchtitan", "--trainer-version", "0.2.2", "--nearest",
                           f"{name}.near", "--force")  # fmt: skip
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("evil", tomllib.loads(done.stdout.decode()))
            evil.unlink()
        table = self.exported(self.planned(MODULE, "=cmd|' /C calc'!A0"), "csv")
        self.assertNotIn(",=", table)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

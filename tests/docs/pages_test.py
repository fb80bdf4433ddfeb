#!/usr/bin/env python3
"""README.md and docs/: what they show is what is printed, what they quote stands where they say, and no link is dead.

usage: pages_test.py PROJECT_ROOT FSDP_PLAN [FSDP_EXEC]

The commands of every block that is marked `console` are run, in order, in one folder for each page; the lines after a command
have to be printed, in that order, and "..." stands for lines that are left out. Without FSDP_EXEC what would train is left out.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(sys.argv[1]).resolve()
FSDP_PLAN = pathlib.Path(sys.argv[2]).resolve()
FSDP_EXEC = pathlib.Path(sys.argv[3]).resolve() if len(sys.argv) > 3 else None
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LIMIT_SECONDS = 900
README_LINES = 120

# What a training run measures is another number each time. A peak that differs by less than 1 % passes as equal: some bytes are
# let go of by another thread.
VARIES = (
    (re.compile(r"[\d.]+ s a step, +[\d,]+( +tokens/s)?"), "TIME a step"),
    (re.compile(r"every compared term is as predicted|furthest from its prediction: .*[+-]0\.\d+ %"), "as predicted"),
)

# Pages that repeat what another page holds or shows.
QUOTED = {
    ("docs/performance.md", "388,206 plans"): "docs/cli_answers.md",
    ("docs/performance.md", "0.41 ms"): "docs/accuracy.md",
    ("docs/models/qwen3_tts.md", "13.44"): "docs/tables/qwen3_tts_settings.md",
    ("docs/models/qwen3_tts.md", "11.24"): "docs/tables/qwen3_tts_settings.md",
}


def name_of(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """The fenced blocks: what stands after the fence, and the lines."""
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield match[1], match[2].splitlines()


def sessions(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of the console blocks, each with the lines that are shown after it."""
    for kind, lines in blocks(text):
        if kind != "console":
            continue
        command, shown = "", []
        for line in lines:
            if line.startswith("$ "):
                if command:
                    yield command, shown
                command, shown = line[2:], []
            else:
                shown.append(line)
        yield command, shown


def with_same_numbers(line: str) -> str:
    for pattern, word in VARIES:
        line = pattern.sub(word, line)
    return line.rstrip()


def not_printed(shown: list[str], printed: list[str]) -> str | None:
    """The first line that is shown and was not printed there; None: there is none."""
    at, may_skip = 0, False
    for line in shown:
        if line == "...":
            may_skip = True
            continue
        wanted = with_same_numbers(line)
        places = [i for i in range(at, len(printed)) if with_same_numbers(printed[i]) == wanted]
        if not places or not (may_skip or places[0] == at):
            return line
        at, may_skip = places[0] + 1, False
    return None if may_skip or at == len(printed) else f"(the end, but it goes on: {printed[at]})"


class Pages(unittest.TestCase):
    def folder_like_the_projects(self) -> pathlib.Path:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        folder = pathlib.Path(made.name)
        for name in ("docs", "model_specs"):
            (folder / name).symlink_to(ROOT / name)
        return folder

    def test_examples_show_what_commands_print(self) -> None:
        environment = {"PATH": f"{FSDP_PLAN.parent}:/usr/bin:/bin", "COLUMNS": "80", "HOME": os.environ.get("HOME", "/"),
                       "FSDP_PLAN_MODEL_SPECS": str(ROOT / "model_specs"), "FSDP_PLAN_EXECUTOR": str(FSDP_EXEC)}
        ran = set()
        for page in PAGES:
            folder, code, needs_executor = self.folder_like_the_projects(), 0, False
            for command, shown in sessions(page.read_text(encoding="utf-8")):
                if command == "echo $?":
                    self.assertEqual(shown, [str(code)] if not needs_executor else shown, f"{name_of(page)}: {command}")
                    continue
                self.assertRegex(command, r"^fsdp-plan [\w./%: ,='\"*-]+$", f"{name_of(page)} runs other programs.")
                needs_executor = FSDP_EXEC is None and " execute " in command
                if needs_executor:
                    continue
                done = subprocess.run(shlex.split(command), cwd=folder, env=environment, capture_output=True, text=True,
                                      timeout=LIMIT_SECONDS, check=False)
                code = done.returncode
                is_refused = any(line.startswith("error: ") for line in shown)
                self.assertIn(code, (2,) if is_refused else (0, 1), f"{name_of(page)}: {command}\n{done.stderr}")
                # Where the time is a long number, its unit is on a line of its own.
                printed = [line for line in (done.stderr if is_refused else done.stdout).splitlines() if line.strip() != "tokens/s"]
                missing = not_printed(shown, printed)
                self.assertIsNone(missing, f"{name_of(page)}: {command} does not print\n{missing}\nbut\n{done.stdout}")
                ran.add(page.name)
        self.assertEqual(ran, {"README.md", "answers.md", "tutorial.md", "machines.md", "cli_answers.md", "auto-wrap-policies.md",
                              "compare-runtimes.md", "hand-the-plan-to-your-trainer.md", "qwen3_tts.md"})

    def test_the_front_page_is_short_and_shows_both_themes(self) -> None:
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        self.assertLessEqual(len(text.splitlines()), README_LINES)
        self.assertIn("docs/images/gui_overview.png", text)
        self.assertIn("docs/images/gui_overview_dark.png", text)

    def test_figures_of_the_front_page_are_on_the_linked_page(self) -> None:
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        rows = [line for line in text.splitlines() if line.startswith("| ") and "](docs/" in line]
        self.assertGreaterEqual(len(rows), 8)
        for row in rows:
            link = re.search(r"\]\((docs/[\w/.]+)", row)
            page = (ROOT / link[1]).read_text(encoding="utf-8")
            figures = re.findall(r"(?<![\w.-])-?\d[\d,]*(?:\.\d+)?(?: %)?", re.sub(r"\]\([^)]*\)", "]", row))
            for figure in figures:
                found = re.search(rf"(?<![\d.,]){re.escape(figure)}(?!\d)", page)
                self.assertTrue(found, f"{row}\n{figure} is not in {link[1]}.")

    def test_repeated_facts_agree(self) -> None:
        for (page, words), source in QUOTED.items():
            for name in (page, source):
                self.assertTrue(words in (ROOT / name).read_text(encoding="utf-8"), f"{name} does not say {words}.")

    def test_quoted_counts_match_the_files(self) -> None:
        sys.path[:0] = [str(ROOT / "tests" / "rehearsal"), str(ROOT / "tests" / "executor")]
        from parity_cases import CASES
        from plan_cases import DDP_CASES
        from plan_cases_fsdp1 import FSDP1_CASES
        from plan_cases_zero import ZERO_CASES, ZERO_MORE_CASES
        from plan_cases_zero3 import ZERO3_CASES, ZERO3_MORE_CASES

        models = len(list((ROOT / "model_specs").glob("*.json")))
        cards = len(list((ROOT / "model_specs/clusters/gpus").glob("*.json")))
        zero = ZERO_CASES + ZERO_MORE_CASES
        zero3 = ZERO3_CASES + ZERO3_MORE_CASES

        def having(key: str) -> int:
            return 1 + sum(key in case.plan["zero"] for case in zero3)

        def kinds(cases: list[Any]) -> int:
            return len({case.model for case in cases})

        def equal(cases: list[Any]) -> int:
            return sum(not (case.requested or case.allocated or case.reserved) for case in cases)

        for page, words, counts in (
                ("README.md", r"(\d+) models and (\d+) GPUs are shipped", (models, cards)),
                ("docs/accuracy.md", r"parameters of (\d+) shipped models", (models,)),
                ("README.md", r"equal in every bit in (\d+) cases", (len(CASES),)),
                ("docs/executor.md", r"There are (\d+)\s+cases", (len(CASES),)),
                ("docs/accuracy.md", r"(\d+) whole plans of DDP and (\d+) of FSDP1", (len(DDP_CASES), len(FSDP1_CASES))),
                ("docs/accuracy.md", r"all; (\d+) and (\d+) equal in every byte", (equal(DDP_CASES), equal(FSDP1_CASES))),
                ("docs/how-to/compare-runtimes.md", r"(\d+) plans of (\d+)\s+models for DDP, (\d+) of (\d+) models for FSDP1",
                 (len(DDP_CASES), kinds(DDP_CASES), len(FSDP1_CASES), kinds(FSDP1_CASES))),
                ("docs/how-to/compare-runtimes.md", r"(\d+) plans of (\d+) models with ZeRO-1 and ZeRO-2", (len(zero), kinds(zero))),
                # One more is trained by its ds_config.json (export_deepspeed_test.py), with hpZ and qwZ.
                ("docs/how-to/compare-runtimes.md", r"(\d+) plans of (\d+) models with ZeRO-3, (\d+) of them with hpZ, (\d+) with qwZ",
                 (1 + len(zero3), kinds(zero3), having("hpz_partition_size"), having("quantized_weights")))):
            found = re.search(words, (ROOT / page).read_text(encoding="utf-8"))
            self.assertIsNotNone(found, f"{page} does not say {words}.")
            self.assertEqual(tuple(map(int, found.groups())), counts, f"{page}: {words}")

    def test_table_of_trained_plans_matches_the_cases(self) -> None:
        sys.path[:0] = [str(ROOT / "tests" / "executor")]
        from framework_cases import DDP_CASES, FSDP1_CASES, SIMPLE_FSDP_CASES, ZERO_CASES

        page = (ROOT / "docs/executor.md").read_text(encoding="utf-8")
        begin = page.index("## Plans of other frameworks")
        section = page[begin:page.index("\n## ", begin)]
        shown = {name: tuple(map(int, counts)) for name, *counts in
                 re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \|$", section, re.MULTILINE)}
        families = {"DDP": DDP_CASES, "FSDP1": FSDP1_CASES, "ZeRO": ZERO_CASES, "SimpleFSDP": SIMPLE_FSDP_CASES}
        self.assertEqual(shown, {name: (len(cases), len({case.model for case in cases}), sum(case.ranks > 2 for case in cases))
                                 for name, cases in families.items()})

    def test_front_page_repeats_the_rehearsal(self) -> None:
        kept = next(lines for kind, lines in blocks((ROOT / "docs/rehearsal_proof.md").read_text(encoding="utf-8"))
                    if lines[0].startswith("$ fsdp-plan rehearse --gpu A100-40G"))
        shown = next(lines for kind, lines in blocks((ROOT / "README.md").read_text(encoding="utf-8"))
                     if lines[0].startswith("$ fsdp-plan rehearse"))
        self.assertIsNone(not_printed([*shown, "..."], kept))

    def test_no_link_is_dead(self) -> None:
        for page in PAGES:
            text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
            links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
            for link in links:
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = (page.parent / path).resolve() if path else page
                self.assertTrue(target.exists(), f"{name_of(page)} links to {link}, which is not there.")
                if anchor:
                    heads = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                    anchors = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
                    self.assertIn(anchor, anchors, f"{name_of(page)} links to {link}.")

    def test_every_page_and_every_picture_is_linked(self) -> None:
        index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
        everything = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
        for page in PAGES[2:]:
            if page.parent.name != "decisions" and page.name != "README.md":
                self.assertIn(f"]({page.relative_to(ROOT / 'docs')})", index, f"{name_of(page)} is not in docs/README.md.")
        for picture in (ROOT / "docs/images").iterdir():
            self.assertTrue(f"images/{picture.name}" in everything, f"No page shows {picture.name}.")

    def test_table_of_decisions_is_complete(self) -> None:
        table = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
        for page in sorted((ROOT / "docs/decisions").glob("0*.md")):
            title = re.match(r"# \d{4}:? (.+)", page.read_text(encoding="utf-8"))
            self.assertIsNotNone(title, name_of(page))
            row = f"[{page.name[:4]}]({page.name}) | {title[1]} |"
            self.assertTrue(row in table, f"docs/decisions/README.md lacks the row {row}")

    def test_named_files_exist(self) -> None:
        folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
        for page in PAGES:
            if page.parent.name == "decisions":  # They tell what was there when they were taken.
                continue
            for path in re.findall(r"`([a-z_]+/[\w/*]+\.(?:cpp|h|json|py))`", page.read_text(encoding="utf-8")):
                if path.partition("/")[0] in folders and path not in {"tests/core/x_test.cpp", "model_specs/NAME.json"}:
                    self.assertTrue(any(ROOT.glob(path)), f"{name_of(page)} names {path}.")

    def test_installation_matches_the_scripts(self) -> None:
        for name in ("README.md", "docs/tutorial.md"):
            for kind, lines in blocks((ROOT / name).read_text(encoding="utf-8")):
                for script in (word for line in lines if not kind for word in line.split() if word.startswith("./scripts/")):
                    self.assertTrue(os.access(ROOT / script, os.X_OK), f"{name} runs {script}.")
                for preset in re.findall(r"--preset (\w+)", "\n".join(lines)):
                    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["workflowPresets"]
                    self.assertIn(preset, [each["name"] for each in presets], name)

    def test_example_model_is_the_large_one_made_small(self) -> None:
        sys.path.insert(0, str(ROOT / "tests" / "executor"))
        import small_models

        spec = json.loads((ROOT / "docs/examples/qwen3_tts_tiny.json").read_text(encoding="utf-8"))
        small = small_models.small_spec("qwen3_tts")
        small["dimensions"] |= {"clip_seconds": 1, "reference_seconds": 1}
        for key in small.keys() - {"name", "description", "source"}:
            self.assertEqual(spec[key], small[key], key)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()

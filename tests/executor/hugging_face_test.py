"""A run on text that stops twice and continues equals an uninterrupted one, and becomes a folder that transformers loads with
equal loss; the table of docs/tables/executor_published.md is from such a run.

    hugging_face_test.py FSDP_EXEC      run by a Python that has torch; without transformers it is skipped (77)
"""

from __future__ import annotations

import json
import pathlib
import sys
import unittest
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from checkpoints import differing  # noqa: E402
from text_run import CONFIGURATION, ENDS, EVALUATE_EVERY, RANKS, export, loaded_loss, table, train  # noqa: E402
from ranks import ROOT, InAFolder  # noqa: E402

EXECUTOR = pathlib.Path(sys.argv[1]).resolve()
EXIT_INPUT, EXIT_SKIPPED = 2, 77
QUOTED = 5e-3  # Another CPU adds in another order, and 60 steps amplify the difference.


class TextTraining(InAFolder):
    def test_run_resumed_twice_equals_one_run_and_loads_in_transformers(self) -> None:
        run = train(EXECUTOR, self.folder)
        self.assertEqual(differing(run.parameters, run.unbroken["parameters"]), [])  # assertEqual on bytes would compute a
                                                                                     # diff for minutes.
        means = [sum(steps) / RANKS for steps in zip(*([step["loss"] for step in rank] for rank in run.unbroken["steps"]),
                                                     strict=True)]
        self.assertEqual(run.losses, dict(enumerate(means, start=1)))
        self.assertEqual(len(run.losses) + len(run.evaluations), len(run.curve))
        self.assertEqual(list(run.evaluations), sorted({*ENDS, *range(EVALUATE_EVERY, ENDS[-1] + 1, EVALUATE_EVERY)}))
        ours = run.evaluations[ENDS[-1]]
        self.assertLess(ours, run.losses[1] - 1, "it has not learned")

        config = self.folder / "published"
        config.mkdir()
        (config / "config.json").write_text(json.dumps(CONFIGURATION), encoding="utf-8")
        (config / "tokenizer.json").write_text("{}", encoding="utf-8")
        found = {}
        for name, options, near in (("whole", [], 2e-6), ("cut", ["--max-shard-bytes", "200000"], 2e-6),
                                    ("half", ["--dtype", "bfloat16"], 0.05)):
            with self.subTest(name):
                out = self.folder / name
                done = export(run.checkpoint, out, "--config", str(config), *options)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual((out / "model.safetensors.index.json").is_file(), name == "cut")
                self.assertTrue((out / "tokenizer.json").is_file())
                written = json.loads((out / "config.json").read_text(encoding="utf-8"))["torch_dtype"]
                self.assertEqual(written, "bfloat16" if name == "half" else "float32")
                found[name] = loaded_loss(out, run.held_out)
                print(f"{name}: fsdp-exec {ours}, transformers {found[name]}", file=sys.stderr)
                self.assertAlmostEqual(found[name], ours, delta=near)
        self.expect_documented(table(run, found["whole"]))
        self.expect_refusals(run.checkpoint, config)

    def expect_documented(self, lines: list[str]) -> None:
        page = (ROOT / "docs" / "tables" / "executor_published.md").read_text(encoding="utf-8")
        quoted = page.split("<!-- text run: made by ")[1].split("<!-- end of text run -->")[0].splitlines()[1:]
        self.assertEqual(len(quoted), len(lines))
        for said, measured in zip(quoted, lines, strict=True):
            for one, other in zip(said.split("|"), measured.split("|"), strict=True):
                if "." in other:
                    self.assertAlmostEqual(float(one), float(other), delta=QUOTED, msg=f"{said} is now {measured}")
                else:
                    self.assertEqual(one, other)

    def expect_refusals(self, step: pathlib.Path, config: pathlib.Path) -> None:
        changes: list[tuple[dict[str, Any], str]] = [
            ({"vocab_size": 256}, "vocab_size is 256"), ({"tie_word_embeddings": False}, "no lm_head.weight"),
            ({"num_hidden_layers": 3}, "num_hidden_layers is 3, and the checkpoint has 2 of them")]
        for change, said in changes:
            (config / "config.json").write_text(json.dumps({**CONFIGURATION, **change}), encoding="utf-8")
            done = export(step, self.folder / "refused", "--config", str(config))
            self.assertEqual(done.returncode, EXIT_INPUT)
            self.assertIn(said, done.stderr)
            self.assertFalse((self.folder / "refused").exists())


if __name__ == "__main__":
    try:
        import transformers  # noqa: F401
    except ImportError:
        print("transformers is not installed", file=sys.stderr)
        sys.exit(EXIT_SKIPPED)
    unittest.main(argv=sys.argv[:1])

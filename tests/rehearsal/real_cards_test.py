"""What real cards were seen to allocate, on the stub GPU that plays them: tests/golden/real_gpu/facts.json, to the byte.

    PYTHON_WITH_TORCH real_cards_test.py LIBFSDP-STUB-GPU.SO PROJECT_ROOT [unittest's options]

One process for each card; with "facts" for an argument this file is what runs in it.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import unittest
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_SECONDS = 300


def conv2d_workspace(fact: dict[str, Any]) -> int:
    """What a convolution of 3 x 3 takes beside its output and gives back: the workspace of cuDNN's engine."""
    import torch

    batch, channels, size = fact["shape"]
    dtype = getattr(torch, fact["dtype"])
    conv = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False, device="cuda", dtype=dtype)
    x = torch.empty(batch, channels, size, size, device="cuda", dtype=dtype)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.no_grad():
        y = conv(x)
    assert torch.cuda.memory_allocated() - before == y.numel() * y.element_size()
    return torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()


def left_by_a_linear_of_one(_: dict[str, Any]) -> int:
    """What stays allocated when a Linear(1, 1) and its input are gone."""
    import torch

    def run() -> None:
        model = torch.nn.Linear(1, 1, device="cuda")
        model(torch.randn(1, 1, device="cuda"))

    run()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def run_facts(golden: pathlib.Path, card: str) -> None:
    """Prints what was found for each fact of the card, as JSON."""
    facts = json.loads(golden.read_text(encoding="utf-8"))
    found = [{"what": what, **fact, "found": globals()[what](fact)}
             for what in ("left_by_a_linear_of_one", "conv2d_workspace") for fact in facts[what] if fact["card"] == card]  # fmt: skip
    print(json.dumps(found))


class RealCards(unittest.TestCase):
    stub: pathlib.Path
    golden: pathlib.Path

    def options_of(self, card: str) -> dict[str, str]:
        """What decides which engine cuDNN takes."""
        for path in sorted((HERE.parents[1] / "model_specs" / "clusters" / "gpus").glob("*.json")):
            facts = json.loads(path.read_text(encoding="utf-8"))
            if facts["name"] == card:
                shared = int(facts["shared_memory_per_block"]["value"].removesuffix("KiB")) << 10
                return {"STUB_GPU_COMPUTE_CAPABILITY": facts["compute_capability"].replace(".", ""),
                        "STUB_GPU_SMS": str(facts["sms"]["value"]), "STUB_GPU_SHARED_PER_BLOCK_BYTES": str(shared)}
        raise AssertionError(f"The library has no {card}.")

    def found_on(self, card: str, **options: str) -> list[dict[str, Any]]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("STUB_GPU_", "PYTORCH_", "CUDA_"))}
        env |= {"LD_PRELOAD": str(self.stub), "OMP_NUM_THREADS": "1", **self.options_of(card), **options}
        done = subprocess.run([sys.executable, "-W", "ignore", __file__, "facts", str(self.golden), card], env=env, text=True,
                              capture_output=True, timeout=TIMEOUT_SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def test_every_figure_of_a_real_card_matches_to_the_byte(self) -> None:
        facts = json.loads(self.golden.read_text(encoding="utf-8"))
        cards = sorted({fact["card"] for group in facts.values() for fact in group})
        found = [fact for card in cards for fact in self.found_on(card)]
        self.assertEqual(len(found), sum(len(group) for group in facts.values()))
        for fact in found:
            with self.subTest(fact["what"], on=fact["on"], source=fact["source"]):
                self.assertEqual(fact["found"], fact["bytes"])

    def test_fixed_workspace_replaces_that_of_cudnn(self) -> None:
        convolutions = [fact for fact in self.found_on("RTX 3090", STUB_GPU_CUDNN_WORKSPACE_BYTES=str(8 << 20))]
        self.assertEqual({fact["found"] for fact in convolutions if fact["what"] == "conv2d_workspace"}, {8 << 20})


if __name__ == "__main__":
    if sys.argv[1] == "facts":
        run_facts(pathlib.Path(sys.argv[2]), sys.argv[3])
    else:
        RealCards.stub = pathlib.Path(sys.argv[1]).resolve()
        RealCards.golden = pathlib.Path(sys.argv[2]).resolve() / "tests" / "golden" / "real_gpu" / "facts.json"
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]])

"""Is it the real PyTorch that runs on the stub GPU, and does it do what is known of it?

    PYTHON_WITH_TORCH self_test.py LIBFSDP-STUB-GPU.SO PROJECT_ROOT [unittest's options]

Starts one process for each card (H100, A100, T4) and one again, all at the same time; self_test_facts.py runs in them.
What is compared lies in tests/golden/rehearsal/.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

STUB = os.path.realpath(sys.argv[1]) if len(sys.argv) > 1 else ""
ROOT = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ".")
HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = ROOT / "tests" / "golden" / "rehearsal"
# What PyTorch may import that the stub stands in for: it must be the stub's, or stand in the reviewed list.
NVIDIA_LIBRARY = re.compile(r"/nvidia/|/lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|cufft|nvidia-ml)[\w.-]*\.so")
TIMEOUT_SECONDS = 900


def environment(card: dict[str, str], bind_now: bool) -> dict[str, str]:
    """That of this process without settings that would change an answer."""
    left_out = ("STUB_GPU_", "PYTORCH_", "TORCH_", "CUBLAS", "CUDA_", "LD_PRELOAD")
    env = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    env.update(card, LD_PRELOAD=STUB, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", STUB_GPU_TRACE="calls")
    if bind_now:
        env["LD_BIND_NOW"] = "1"
    return env


def start(card: dict[str, str], symbols: bool) -> subprocess.Popen:
    command = [sys.executable, "-W", "ignore", str(HERE / "self_test_facts.py"), str(GOLDEN / "self_test.json")]
    return subprocess.Popen(command + ["symbols"] * symbols, env=environment(card, symbols), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen) -> dict:
    try:
        out, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        process.kill()
    if process.returncode != 0:
        raise AssertionError(f"PyTorch on the stub GPU ended with status {process.returncode}:\n{errors}")
    return {**json.loads(out.splitlines()[-1]), "stderr": errors}


class SelfTest(unittest.TestCase):
    known: dict
    results: dict[str, dict]
    again: dict
    maxDiff = None

    @classmethod
    def setUpClass(cls) -> None:
        cls.known = json.loads((GOLDEN / "self_test.json").read_text())
        cls.reviewed = json.loads((GOLDEN / "real_functions.json").read_text())
        processes = {card: start(env, card == "h100") for card, env in cls.known["cards"].items()}
        again = start(cls.known["cards"]["h100"], False)
        cls.results = {card: finish(process) for card, process in processes.items()}
        cls.again = finish(again)
        cls.torch = cls.again["torch"]
        cls.bindings = cls.results["h100"]["bindings"]

    def version(self) -> dict:
        """What is known of this version of PyTorch."""
        minor = ".".join(self.torch.split(".")[:2])
        for version in self.known["versions"]:
            if minor in version["torch"]:
                return version
        self.fail(f"Nothing is known of torch {self.torch}: add it to tests/golden/rehearsal/self_test.json.")

    def test_functions_of_the_stub_are_bound_to_the_stub(self) -> None:
        """No function of ours may be bound to the real library of the same function."""
        import loaded_symbols
        ours = loaded_symbols.ElfFile(STUB).defined()
        bound = self.bindings.get(STUB, {})
        self.assertGreater(len(bound), 250, "PyTorch imports some 380 functions that the stub defines")
        elsewhere = {name: library for library, names in self.bindings.items() if library != STUB for name in names
                     if name in ours}
        self.assertEqual(elsewhere, {}, "these functions of the stub are bound to another library")

    def test_stub_has_every_function_on_the_path(self) -> None:
        """A function of the real CUDA, cuBLAS, cuDNN or NCCL that PyTorch imports is reviewed, or the stub must have it."""
        reviewed = {name for group in self.reviewed["functions"] for name in group["names"]}
        missing = []
        for library, names in self.bindings.items():
            file = os.path.basename(library)
            if library == STUB or not NVIDIA_LIBRARY.search(library) or file.startswith(tuple(self.reviewed["libraries"])):
                continue
            missing += [f"{name} of {file}, imported by {', '.join(who)}" for name, who in names.items()
                        if name not in reviewed]
        self.assertEqual(missing, [], f"torch {self.torch} calls the real function: add it to rehearsal/ or to "
                                      "tests/golden/rehearsal/real_functions.json with a reason")

    def test_stub_has_every_function_of_the_driver(self) -> None:
        reviewed = {name for group in self.reviewed["driver"] for name in group["names"]}
        for card, result in self.results.items():
            asked = set(re.findall(r"no driver function (\w+)", result["stderr"]))
            self.assertEqual(sorted(asked - reviewed), [], f"{card}: torch {self.torch} asks for functions of the driver")

    def test_no_missing_function_was_called(self) -> None:
        for card, result in self.results.items():
            self.assertEqual(re.findall(r"stub GPU: missing (\S+)", result["stderr"]), [], card)

    def test_allocator_and_kernels_are_pytorchs(self) -> None:
        """The allocator that is used is libc10_cuda's, and the operators libtorch_cuda's and libtorch_cpu's."""
        owners = {os.path.basename(library): set(names) for library, names in self.bindings.items()}
        allocator = {name for name in owners["libc10_cuda.so"] if "CUDACachingAllocator" in name}
        self.assertTrue(allocator, "libtorch_cuda imports the allocator")
        for library, names in owners.items():
            if library not in {"libc10_cuda.so", "libtorch_cuda.so", "libtorch_cpu.so", "libtorch_python.so"}:
                foreign = {name for name in names if "CUDACachingAllocator" in name or name.startswith("_ZN2at6native")}
                self.assertEqual(foreign, set(), library)
        self.assertTrue(any(name.startswith("_ZN2at") for name in owners["libtorch_cuda.so"]))

    def test_card_is_the_requested_one(self) -> None:
        for card, result in self.results.items():
            env, facts = self.known["cards"][card], result["facts"]
            wanted = {
                "total_memory": "STUB_GPU_BYTES", "multi_processor_count": "STUB_GPU_SMS", "L2_cache_size": "STUB_GPU_L2_BYTES",
                "max_threads_per_multi_processor": "STUB_GPU_THREADS_PER_SM",
                "shared_memory_per_block_optin": "STUB_GPU_SHARED_PER_BLOCK_BYTES",
                "shared_memory_per_multiprocessor": "STUB_GPU_SHARED_PER_SM_BYTES",
            }
            self.assertEqual(facts["device"], env["STUB_GPU_NAME"])
            self.assertEqual(facts["capability"], [int(digit) for digit in env["STUB_GPU_COMPUTE_CAPABILITY"]])
            self.assertEqual({name: facts["properties"][name] for name in wanted},
                             {name: int(env[variable]) for name, variable in wanted.items()})

    def test_allocator_reserves_known_sizes(self) -> None:
        for card, result in self.results.items():
            for mode in ("native", "expandable"):
                self.assertEqual(result["facts"][mode]["allocator"],
                                 {case["name"]: case[mode] for case in self.known["allocator"]}, f"{card}, {mode}")

    def test_workspaces_have_their_known_sizes(self) -> None:
        """One workspace of cuBLAS for the thread of the forward pass, and one more for that of the backward pass."""
        for card, result in self.results.items():
            size = self.known["cublas"][card]
            for mode in ("native", "expandable"):
                self.assertEqual(result["facts"][mode]["workspaces"], {
                    "cublas_forward": size, "cublas_backward": 2 * size, "cublaslt": self.version()["cublaslt"],
                }, f"{card}, {mode}")

    def test_attention_backends_are_the_known_ones(self) -> None:
        for card, result in self.results.items():
            self.assertEqual(result["facts"]["attention"], self.version()["attention"][card], card)

    def test_sizes_read_back_are_reported_by_name(self) -> None:
        for card, result in self.results.items():
            self.assertEqual(result["facts"]["readbacks"], {
                "item": ["item"], "if": ["item"], "to the host": ["copy"], "nonzero": ["nonzero"], "boolean index": ["nonzero"],
                "masked_select": ["masked_select"], "unique": ["unique"], "bincount": ["bincount"], "sent by the host": [],
                "kernels only": [],
            }, card)

    def test_only_the_device_allocator_depends_on_the_time_of_events(self) -> None:
        for card, result in self.results.items():
            self.assertEqual(result["facts"]["allocator_event_queries"], {"pinned": 0, "record_stream": 1}, card)

    def test_cuda_graphs_have_a_pool_of_their_own(self) -> None:
        for card, result in self.results.items():
            self.assertEqual(result["facts"]["cuda_graph"], {
                "tensors": 2 << 22, "pool": self.version()["graph_pool"],
                "item": "CUDA error: operation not permitted when stream is capturing",
            }, card)

    def test_training_steps_have_their_known_peaks(self) -> None:
        for card, result in self.results.items():
            for mode in ("native", "expandable"):
                self.assertEqual(result["facts"][mode]["steps"]["peaks"], self.version()["step_peaks"][card][mode],
                                 f"{card}, {mode}")

    def test_two_runs_are_the_same_to_the_last_allocation(self) -> None:
        self.assertGreater(self.again["facts"]["native"]["steps"]["events"], 900)
        self.assertEqual(self.again["facts"], self.results["h100"]["facts"])


if __name__ == "__main__":
    if not os.path.isfile(STUB) or not GOLDEN.is_dir():
        sys.exit(__doc__)
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])

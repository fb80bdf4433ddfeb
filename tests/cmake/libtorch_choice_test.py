"""The build takes the one of several LibTorches that builds most, and says what it leaves out and why.

    libtorch_choice_test.py CMAKE PROJECT

The project's own CMake files are run on folders that are made up: they look at names and at a version, nothing else.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
import unittest

CMAKE, PROJECT = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
CPU = ("torch/lib/libtorch_cpu.so", "torch/lib/libc10.so")
GPUS = ("torch/lib/libtorch_cuda.so", "torch/lib/libc10_cuda.so", "nvidia/cu13/lib/libcudart.so.13",
        "nvidia/cu13/include/cuda_runtime_api.h", "nvidia/nccl/lib/libnccl.so.2", "nvidia/nccl/include/nccl.h")
LISTS = """cmake_minimum_required(VERSION 3.25)
project(choice VERSION 0.0.0 LANGUAGES NONE)
set(FSDP_CUDA_INCLUDE none)
set(FSDP_NCCL_INCLUDE none)
list(PREPEND CMAKE_MODULE_PATH {modules})
include(fsdp_parts)
message(STATUS "taken: ${{fsdp_libtorch_folder}}, for GPUs: ${{FSDP_LIBTORCH_CUDA_FOUND}}")
fsdp_print_parts()
"""


class ChosenLibTorch(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "executor").mkdir()
        (self.folder / "executor" / "CMakeLists.txt").touch()

    def add(self, name: str, *files: str, version: str = "2.11.0+cu130") -> None:
        packages = self.folder / "build" / "python" / name / "lib" / "python3.11" / "site-packages"
        for file in files:
            (packages / file).parent.mkdir(parents=True, exist_ok=True)
            (packages / file).touch()
        (packages / "torch" / "version.py").write_text(f"__version__ = '{version}'\n", encoding="utf-8")

    def configure(self) -> str:
        (self.folder / "CMakeLists.txt").write_text(LISTS.format(modules=PROJECT / "cmake"), encoding="utf-8")
        done = subprocess.run([CMAKE, "-S", self.folder, "-B", self.folder / "out", "-DCMAKE_DISABLE_FIND_PACKAGE_Qt6=ON",
                               "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_quickstart_uses_the_whole_of_pytorch(self) -> None:
        self.add("libtorch-2.11.0", *CPU)
        self.add("torch-2.11.0", *CPU, *GPUS)
        said = self.configure()
        self.assertRegex(said, r"taken: \S+/build/python/torch-2.11.0/\S+, for GPUs: TRUE")
        self.assertNotIn("fsdp-exec-cuda", said)

    def test_libraries_alone_build_for_cpu_and_name_what_is_missing(self) -> None:
        self.add("libtorch-2.11.0", *CPU)
        said = self.configure()
        self.assertRegex(said, r"taken: \S+/libtorch-2.11.0/\S+, for GPUs: FALSE")
        self.assertRegex(said, r"left out  fsdp-exec-cuda .* lacks torch/lib/libtorch_cuda.so, .*nvidia/nccl/include/nccl.h\. "
                               r"To add them: ./scripts/bootstrap --with rehearsal")

    def test_missing_header_is_named(self) -> None:
        self.add("torch-2.11.0", *CPU, *GPUS[:-1])
        self.assertIn(" lacks nvidia/nccl/include/nccl.h. ", self.configure())

    def test_other_versions_are_skipped(self) -> None:
        self.add("torch-2.11.0", *CPU, *GPUS, version="2.12.0")
        self.add("libtorch-2.11.0", *CPU)
        said = self.configure()
        self.assertIn("is not of PyTorch 2.11", said)
        self.assertRegex(said, r"taken: \S+/libtorch-2.11.0/")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

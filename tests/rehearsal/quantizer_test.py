"""The stand-in for DeepSpeed's quantizer (`fsdp_plan_runner/quantizer.py`) allocates what DeepSpeed's own does: the C++ binding of the
installed DeepSpeed, with kernels that do nothing, is called beside it on the stub GPU.

    quantizer_test.py STUB      run by a Python that has torch and DeepSpeed; exit 77 without DeepSpeed, a compiler or headers
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
STUB = pathlib.Path(sys.argv[1]).resolve()

# What the binding launches. Two of them are templates, of which it uses these.
KERNELS = """
#include "quantization.h"

void launch_quant(int8_t*, float*, const __half*, const int, const int, const int, const quantize::Type, cudaStream_t) {}
template <typename T>
void launch_dequantize_kernel(T*, const int8_t*, const float*, quantize::Type, int, int, int, cudaStream_t) {}
template void launch_dequantize_kernel(__half*, const int8_t*, const float*, quantize::Type, int, int, int, cudaStream_t);
template void launch_dequantize_kernel(float*, const int8_t*, const float*, quantize::Type, int, int, int, cudaStream_t);
void launch_swizzled_quant(int8_t*, float*, const __half*, int, quantize::Type, int, int, int, int, int, cudaStream_t) {}
void launch_dequant_reduce(int8_t*, float*, const int8_t*, const float*, int, int, quantize::Type, int, int, int, int, int,
                           cudaStream_t) {}
void launch_dequantize_int4_to_half_experimental(uint8_t*, half*, half*, half*, int, int, cudaStream_t) {}
void launch_dequantize_int8_to_half_experimental(uint8_t*, half*, half*, half*, int, int, cudaStream_t) {}
"""

# Calls each function of both and writes down the tensors that come back, and the addresses at which they lie: the same requests
# in the same order get the same.
CALL_BOTH = """
import importlib.util, json, sys

import torch
from fsdp_plan_runner.quantizer import Quantizer

spec = importlib.util.spec_from_file_location("quantizer", sys.argv[1])
theirs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(theirs)


def calls(module):
    said = []

    def keep(result):
        tensors = list(result) if isinstance(result, (list, tuple)) else [result]
        said.append([(list(t.shape), str(t.dtype), t.data_ptr() - base) for t in tensors])
        return tensors

    base = torch.empty(1 << 26, dtype=torch.int8, device="cuda").data_ptr()
    for shape, groups, ranks in (((4096,), 8, 2), ((1769472,), 216, 4), ((768, 2304), 2304, 8), ((96, 64), 96, 2)):
        values = torch.empty(shape, dtype=torch.half, device="cuda")
        quantized, scales = keep(module.quantize(values, groups, 8, module.Symmetric))
        keep(module.dequantize(quantized, scales, scales.numel(), 8, module.Symmetric))
        packed, scales = keep(module.swizzle_quant(values, groups, 4, module.Symmetric, 1, 2, ranks))
        reduced, scales = keep(module.quantized_reduction(packed, scales, groups, groups // ranks, 4, module.Symmetric, ranks))
        keep(module.dequantize(reduced, scales, scales.numel(), 4, module.Symmetric))
        del values, quantized, packed, reduced, scales
    return said


# Once for what the first allocations of a process bring about.
calls(Quantizer)
torch.cuda.empty_cache()
print(json.dumps([calls(theirs), calls(Quantizer)]))
"""


def headers() -> list[pathlib.Path]:
    import torch

    packages = pathlib.Path(torch.__file__).parent
    cuda = [folder for folder in packages.parent.glob("nvidia/cu*/include") if (folder / "cuda_runtime.h").is_file()]
    return [packages / "include", packages / "include" / "torch" / "csrc" / "api" / "include",
            pathlib.Path(sysconfig.get_path("include")), *cuda]


def compiled(sources: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """DeepSpeed's binding of its quantizer, as a module of Python."""
    import torch

    (folder / "kernels.cpp").write_text(KERNELS, encoding="utf-8")
    target = folder / "quantizer.so"
    libraries = pathlib.Path(torch.__file__).parent / "lib"
    words = ["g++", "-shared", "-fPIC", "-O0", "-w", "-std=c++17", "-DTORCH_EXTENSION_NAME=quantizer", "-DTORCH_API_INCLUDE_EXTENSION_H",
             str(sources / "quantization" / "pt_binding.cpp"), str(folder / "kernels.cpp"), "-o", str(target),
             *(f"-I{path}" for path in (sources / "includes", *headers())), f"-L{libraries}",
             *(f"-l{name}" for name in ("c10", "torch_cpu", "torch", "torch_python", "c10_cuda", "torch_cuda"))]  # fmt: skip
    subprocess.run(words, check=True)
    return target


class TheQuantizer(unittest.TestCase):
    def test_replacement_allocates_what_deepspeeds_own_does(self) -> None:
        sources = pathlib.Path(importlib.util.find_spec("deepspeed").origin).parent / "ops" / "csrc"
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            module = compiled(sources, folder)
            environment = {**os.environ, "LD_PRELOAD": str(STUB), "PYTHONPATH": str(ROOT / "python")}
            done = subprocess.run([sys.executable, "-c", CALL_BOTH, str(module)], env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        theirs, ours = json.loads(done.stdout)
        self.assertEqual(len(theirs), 20)
        self.assertEqual(ours, theirs)


if __name__ == "__main__":
    missing = [what for what, there in (("DeepSpeed", importlib.util.find_spec("deepspeed")), ("g++", shutil.which("g++")),
                                        ("CUDA's headers", len(headers()) > 3), ("Python.h", (headers()[2] / "Python.h").is_file()))
               if not there]  # fmt: skip
    if missing:
        print(f"This needs {', '.join(missing)}.", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)

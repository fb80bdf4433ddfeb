"""Runs under the stub GPU and prints, as one line of JSON, what PyTorch says there. self_test.py compares.

    self_test_facts.py FACTS.json [symbols]

With `symbols`, started with LD_BIND_NOW=1, it also says which library each imported function is bound to.
"""

import collections
import ctypes
import hashlib
import json
import os
import sys

import torch

import loaded_symbols


def memory_now() -> list[int]:
    return [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]


def allocator_case(program: list[list]) -> list[int]:
    """Allocated and reserved bytes after a list of [name, bytes] or [name, bytes, times]; 0 bytes gives the name back."""
    live = {}
    for name, size, *times in program:
        live.pop(name, None)
        if size:
            live[name] = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(*times or (1,))]
    result = memory_now()
    live.clear()
    torch.cuda.empty_cache()
    return result


def workspaces() -> dict[str, int]:
    """Bytes that PyTorch keeps for cuBLAS after a product forward, after its backward, and for cuBLASLt beside it."""
    weight = torch.zeros(256, 256, device="cuda", requires_grad=True)
    x = torch.zeros(256, 256, device="cuda")
    before = torch.cuda.memory_allocated()
    y = x @ weight
    forward = torch.cuda.memory_allocated() - before - y.nbytes
    y.sum().backward()
    del y
    backward = torch.cuda.memory_allocated() - before - weight.nbytes
    linear = torch.nn.Linear(256, 256, device="cuda")
    before = torch.cuda.memory_allocated()
    y = linear(x)
    lt = torch.cuda.memory_allocated() - before - y.nbytes
    return {"cublas_forward": forward, "cublas_backward": backward, "cublaslt": lt}


def attention_choices() -> dict[str, str]:
    """What scaled_dot_product_attention takes for each dtype, by default and without cuDNN."""
    names = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}
    choices = {}
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        q = torch.zeros(1, 2, 256, 64, device="cuda", dtype=dtype)
        for cudnn in (True, False):
            torch.backends.cuda.enable_cudnn_sdp(cudnn)
            key = f"{str(dtype).removeprefix('torch.')}{'' if cudnn else ', cuDNN off'}"
            choices[key] = names[torch._fused_sdp_choice(q, q, q)]
    torch.backends.cuda.enable_cudnn_sdp(True)
    return choices


def readbacks() -> dict[str, list[str]]:
    """What the stub says was read back from the device by each of these."""
    seen: list[str] = []
    listen = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64)(lambda what, _: seen.append(what.decode()))
    stub = ctypes.CDLL(None)
    stub.stub_gpu_on_readback(listen)
    x = torch.ones(64, device="cuda")
    mask, index = x > 0, torch.zeros(64, dtype=torch.long, device="cuda")
    programs = {
        "item": lambda: x.sum().item(), "if": lambda: bool(mask.any()), "to the host": lambda: x.cpu(),
        "nonzero": lambda: mask.nonzero(), "boolean index": lambda: x[mask], "masked_select": lambda: x.masked_select(mask),
        "unique": lambda: index.unique(), "bincount": lambda: (index + 1).bincount(),
        "sent by the host": lambda: torch.tensor(5.0, device="cuda").item(), "kernels only": lambda: x.softmax(0).topk(3),
    }
    result = {}
    for name, program in programs.items():
        seen.clear()
        program()
        result[name] = sorted(set(seen))
    stub.stub_gpu_on_readback(ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64)())
    return result


def allocator_event_queries() -> dict[str, int]:
    """How often the device allocator asked for an event that the host had not waited for: after the reuse of pinned memory,
    and after that of a tensor that another stream uses."""
    stub = ctypes.CDLL(None)
    stub.stub_gpu_counter.restype = ctypes.c_uint64
    pinned = torch.empty(1 << 20, pin_memory=True)
    device = torch.empty(1 << 20, device="cuda")
    device.copy_(pinned, non_blocking=True)
    del pinned
    torch.empty(1 << 20, pin_memory=True)
    queries = {"pinned": stub.stub_gpu_counter(b"allocator_event_query")}
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        device.mul_(2)
    device.record_stream(stream)
    del device
    torch.empty(1 << 20, device="cuda")
    queries["record_stream"] = stub.stub_gpu_counter(b"allocator_event_query")
    return queries


def cuda_graph() -> dict:
    """Bytes of two tensors of 4 MiB in the private pool of a graph, what the pool reserves, and what `item` does there."""
    torch.cuda.empty_cache()
    x = torch.zeros(1 << 20, device="cuda")
    reserved = torch.cuda.memory_reserved()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = x * 2
        kept = doubled + 1
        del doubled
        result = kept * 3
    graph.replay()
    grown = torch.cuda.memory_reserved() - reserved
    allocated = torch.cuda.memory_allocated()
    del kept, result
    freed = allocated - torch.cuda.memory_allocated()
    del graph
    torch.cuda.empty_cache()
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.sum().item()
        error = "none"
    except RuntimeError as caught:
        error = str(caught).partition("\n")[0]
    torch.cuda.synchronize()
    return {"tensors": freed, "pool": grown, "item": error}


def adam(parameters: list[torch.Tensor], first: list[torch.Tensor], second: list[torch.Tensor]) -> None:
    """Adam by foreach operations, without its corrections: torch.optim takes as long to import as all of torch."""
    gradients = [p.grad for p in parameters]
    torch._foreach_lerp_(first, gradients, 0.1)
    torch._foreach_mul_(second, 0.999)
    torch._foreach_addcmul_(second, gradients, gradients, 0.001)
    roots = torch._foreach_sqrt(second)
    torch._foreach_add_(roots, 1e-8)
    torch._foreach_addcdiv_(parameters, first, roots, -1e-3)
    for p in parameters:
        p.grad = None


def training_steps() -> dict:
    """Three steps of a small transformer: peaks, and a digest of all that the allocator was asked for."""
    torch.cuda.memory._record_memory_history(context=None)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, norm_first=True)
    model = torch.nn.Sequential(layer, torch.nn.Linear(256, 1000)).to("cuda", torch.bfloat16)
    parameters = list(model.parameters())
    torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    for _ in range(3):
        x = torch.zeros(8, 512, 256, device="cuda", dtype=torch.bfloat16)
        labels = torch.zeros(8 * 512, device="cuda", dtype=torch.long)
        torch.nn.functional.cross_entropy(model(x).flatten(0, 1).float(), labels).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        with torch.no_grad():
            adam(parameters, first, second)
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    trace = [(event["action"], event["size"], event["addr"]) for event in events]
    stats = torch.cuda.memory_stats()
    return {"peaks": {key: stats[f"{key}_bytes.all.peak"] for key in ("requested", "allocated", "active", "reserved")},
            "events": len(trace), "digest": hashlib.sha256(repr(trace).encode()).hexdigest()}


def start_afresh(expandable: bool) -> None:
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    change = getattr(torch._C, "_accelerator_setAllocatorSettings", None) or torch.cuda.memory._set_allocator_settings
    change(f"expandable_segments:{expandable}")


def all_facts(known: dict) -> dict:
    facts = {"device": torch.cuda.get_device_name(), "capability": list(torch.cuda.get_device_capability())}
    properties = torch.cuda.get_device_properties(0)
    facts["properties"] = {name: getattr(properties, name) for name in (
        "total_memory", "multi_processor_count", "L2_cache_size", "warp_size", "regs_per_multiprocessor",
        "max_threads_per_multi_processor", "shared_memory_per_block_optin", "shared_memory_per_multiprocessor")}
    for mode in ("native", "expandable"):
        start_afresh(mode == "expandable")
        facts[mode] = {
            "allocator": {case["name"]: allocator_case(case["program"]) for case in known["allocator"]},
            "workspaces": workspaces(),
            "steps": training_steps(),
        }
    facts["attention"] = attention_choices()
    facts["readbacks"] = readbacks()
    facts["cuda_graph"] = cuda_graph()
    facts["allocator_event_queries"] = allocator_event_queries()
    return facts


def all_bindings() -> dict[str, dict[str, list[str]]]:
    """Library that a function is bound to, by its path: function to the libraries of PyTorch that import it."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    for late in ("libcaffe2_nvrtc.so", "libtorch_cuda_linalg.so"):  # PyTorch loads them when they are needed
        ctypes.CDLL(os.path.join(folder, late))
    where = loaded_symbols.AddressMap()
    found: dict[str, dict[str, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in sorted(where.base):
        if os.path.dirname(path) == folder and ".so" in path:
            for name, library in loaded_symbols.bindings(path, where):
                found[library][name].append(os.path.basename(path))
    return found


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        known = json.load(file)
    result = {"torch": torch.__version__, "facts": all_facts(known)}
    if "symbols" in sys.argv[2:]:
        result["bindings"] = all_bindings()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()

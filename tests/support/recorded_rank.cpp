#include "tests/support/recorded_rank.h"

#include <cassert>

namespace fsdp {

std::string recorded_rank() {
  return R"json({
 "format_version": "1.0",
 "end": {"why": "steps_reached", "exception": null, "exit_status": null},
 "environment": {"python": "3.11.2", "torch": "2.11.0+cu130", "cuda": "13.0", "packages": {"transformers": "5.23.0"},
  "torch_imported": true, "cuda_initialized": true},
 "job": {"argv": ["python", "train.py"], "rank": 0, "world_size": 8, "local_rank": 0, "local_world_size": 8,
  "backends": ["nccl"]},
 "steps": 3,
 "seconds": {"total": 4.5, "steps": [1.0, 0.5, 0.5]},
 "host_peak_bytes": 1073741824,
 "gpu": {"name": "NVIDIA H100 80GB HBM3", "total_bytes": 85018542080},
 "memory": {
  "peaks": {"requested": 2000000000, "allocated": 2147483648, "active": 2200000000, "reserved": 3221225472,
   "device": 4294967296},
  "device_terms": [{"name": "CUDA context", "bytes": 618659840}, {"name": "NCCL", "bytes": 455081984}],
  "phases": [
   {"phase": "initialization", "requested": 1, "allocated": 512, "active": 512, "reserved": 2097152, "device": 4194304},
   {"phase": "steady_step", "requested": 2000000000, "allocated": 2147483648, "active": 2200000000,
    "reserved": 3221225472, "device": 4294967296}],
  "at_end_requested": 1000, "at_end_allocated": 1024, "cache_flushes": 1, "out_of_memory_errors": 0,
  "peak": {"phase": "backward", "step": 2, "module": "layers.3.mlp",
   "at": {"file": "train.py", "line": 41, "function": "main"},
   "stack": [{"file": "/x/site-packages/torch/nn/functional.py", "line": 10, "function": "silu"},
    {"file": "train.py", "line": 41, "function": "main"}]},
  "at_peak": [{"file": "train.py", "line": 41, "function": "main", "framework": "autograd", "count": 3,
    "bytes": 1500000000},
   {"file": "", "line": 0, "function": "", "count": 9, "bytes": 500000000}],
  "over_step": {"allocated": [1, 5, 3], "marks": [{"phase": "forward", "index": 0}, {"phase": "backward", "index": 2}]}},
 "collectives": {"steady_step": [
   {"kind": "all_gather", "dtype": "bfloat16", "elements": 1000, "payload_bytes": 2000, "group_size": 8,
    "unit": "(root)", "phase": "forward"},
   {"kind": "all_to_all", "dtype": "float8_e4m3fn", "elements": 800, "payload_bytes": 800, "group_size": 4,
    "unit": "", "phase": "backward"}],
  "totals_per_step": [], "before_first_step": []},
 "applied": {
  "wrappers": [{"class": "torch.distributed.fsdp.FSDPModule", "name": "FSDP2", "model": "Llama", "version": "2.11.0+cu130",
   "strategy": "FULL_SHARD", "zero_stage": null,
   "units": [{"name": "layers.0", "class": "Block", "parameters": 9, "elements": 900},
    {"name": "(root)", "class": "Llama", "parameters": 2, "elements": 100}],
   "mixed_precision": {"param_dtype": "torch.bfloat16", "reduce_dtype": "torch.float32", "buffer_dtype": null},
   "reshard_after_forward": true, "offload": false, "autocast": ["torch.bfloat16"]}],
  "parameters": 1000, "trainable_parameters": 900, "parameter_dtypes": {"torch.float32": 1000},
  "optimizers": [{"class": "torch.optim.adamw.AdamW", "foreach": null, "fused": true, "parameters": 11}]},
 "warnings": [{"kind": "one_unit", "text": "One unit only.", "file": "train.py", "line": 12}],
 "limits": {"readbacks": [{"operation": "item", "file": "train.py", "line": 50, "count": 2, "steers_sizes": false}],
  "missing_functions": [], "allocator_event_queries": 0, "cudnn_plans": 4, "triton": false, "cuda_graphs": false,
  "data_dependent_routing": false}
}
)json";
}

std::string with(std::string text, const std::string& piece, const std::string& replacement) {
  const std::size_t at = text.find(piece);
  assert(at != std::string::npos && text.find(piece, at + 1) == std::string::npos);
  return text.replace(at, piece.size(), replacement);
}

}  // namespace fsdp

#include "planner/cli_options.h"

#include <array>
#include <cassert>

namespace fsdp::planner {

namespace {

constexpr std::array kCommands = {
    CommandInfo{Command::Plan, 'p', "plan", "MODEL", "Find the fastest plan that fits; the default."},
    CommandInfo{Command::Simulate, 's', "simulate", "PLAN", "Predict what the plan of a file costs."},
    CommandInfo{Command::Explain, 'e', "explain", "PLAN",
                "Say what decides a plan's peak, and what each remedy would bring."},
    CommandInfo{Command::Rehearse, 'r', "rehearse", "PLAN|-- COMMAND",
                "Run a training script, or a plan, with the real PyTorch on a GPU that is not there."},
    CommandInfo{Command::Execute, 'x', "execute", "PLAN",
                "Train a plan for real on this machine, and compare with its prediction."},
    CommandInfo{Command::Replay, 'y', "replay", "FILE",
                "Say what another allocator setting would have done to a recorded run."},
    CommandInfo{Command::Compare, 'o', "compare", "PREDICTED MEASURED", "Line up two reports, worst term first."},
    CommandInfo{Command::Export, 't', "export", "PLAN",
                "Write a predicted step for Perfetto, PyTorch's memory viewer or a spreadsheet."},
    CommandInfo{Command::Schema, 'c', "schema", "[NAME]", "Print the JSON Schema of model, cluster, plan or report."},
    CommandInfo{Command::Models, 'm', "models", "[MODEL]",
                "List the models that are shipped; with --expanded, write one out."},
    CommandInfo{Command::Gpus, 'g', "gpus", "", "List the GPUs and clusters that are shipped."},
    CommandInfo{Command::Doctor, 'd', "doctor", "", "Say what is installed and what is missing."},
    CommandInfo{Command::Completions, 'k', "completions", "SHELL", "Print completions for bash, zsh or fish."},
};

constexpr std::string_view kMachines = "Machines";
constexpr std::string_view kWork = "Work";
constexpr std::string_view kPlan = "Plan (what is not fixed is searched)";
constexpr std::string_view kRehearsal = "Rehearsal";
constexpr std::string_view kExecution = "Execution";
constexpr std::string_view kReplay = "Replay";
constexpr std::string_view kOutput = "Output";

constexpr std::array kOptions = {
    OptionInfo{Option::Gpus, "--gpus,--nproc-per-node", "N", "", kMachines, "GPUs per node", "psert"},
    OptionInfo{Option::Nodes, "--nodes,--nnodes", "N", "", kMachines, "Nodes; 1 when not given", "psert"},
    OptionInfo{Option::GpuName, "--gpu", "NAME", "", kMachines, "GPU, such as T4 or \"H100 SXM\" (see fsdp-plan gpus)",
               "psert"},
    OptionInfo{Option::Memory, "--mem,--memory", "SIZE", "", kMachines, "Memory of a GPU, such as 16G", "psertx"},
    OptionInfo{Option::ClusterFile, "--cluster", "FILE|NAME", "", kMachines, "Cluster, from a file or by its name",
               "psert"},

    OptionInfo{Option::IntraLinkName, "--intra-link", "KIND", "nvswitch|nvlink|pcie-peer|pcie-host", kMachines,
               "What links the GPUs of a node", "psert"},
    OptionInfo{Option::IntraBandwidth, "--intra-bandwidth", "RATE", "", kMachines,
               "Its nominal rate for one GPU each way, such as 300GB/s", "psert"},
    OptionInfo{Option::NetworkName, "--network", "KIND", "infiniband|roce|ethernet|efa", kMachines,
               "What links the nodes", "psert"},
    OptionInfo{Option::NicBandwidth, "--nic-bandwidth", "RATE", "", kMachines, "Rate of a NIC each way", "psert"},
    OptionInfo{Option::GpusPerNic, "--gpus-per-nic", "N", "", kMachines, "GPUs that share a NIC", "psert"},
    OptionInfo{Option::HostMemory, "--host-mem", "SIZE", "", kMachines, "Memory of a node, for offload", "psert"},

    OptionInfo{Option::Recipe, "--recipe", "NAME", "", kWork, "Way to train, of those that the model has", "pem"},
    OptionInfo{Option::Batch, "--batch", "N", "", kWork, "Samples per GPU and micro-batch", "pem"},
    OptionInfo{Option::Sequence, "--seq", "N", "", kWork, "Tokens per sample", "pem"},
    OptionInfo{Option::GlobalBatch, "--global-batch", "N", "", kWork,
               "Samples per optimizer step, over all GPUs; micro-batch and accumulation are searched", "pe"},
    OptionInfo{Option::Accumulate, "--accumulate", "N", "", kWork, "Micro-batches per optimizer step", "pe"},
    OptionInfo{Option::SetDimension, "--set", "NAME=VALUE", "", kWork, "Size of any other dimension of the model",
               "pem", true},
    OptionInfo{Option::Trainable, "--trainable", "PATTERN...", "", kWork, "Train only the parameters that match", "pem",
               true, true},
    OptionInfo{Option::Freeze, "--freeze,--frozen", "PATTERN...", "", kWork, "Freeze the parameters that match", "pem",
               true, true},
    OptionInfo{Option::Precision, "--precision", "NAME", "bf16|mixed|fp16|fp16-mixed|fp32", kWork,
               "bf16, fp16, fp32: all in that dtype; mixed: fp32 weights, bf16 compute, fp32 reduce", "pe"},
    OptionInfo{Option::ReduceDtype, "--reduce-dtype", "DTYPE", "float32|bfloat16|float16", kWork,
               "Gradients are reduced in it", "pe"},
    OptionInfo{Option::OptimizerName, "--optimizer", "NAME", "adamw|adam|sgd", kWork, "Optimizer", "pe"},
    OptionInfo{Option::OptimizerImpl, "--optimizer-impl", "NAME", "foreach|fused|for_loop", kWork,
               "How PyTorch runs it", "pe"},
    OptionInfo{Option::OptimizerStatesName, "--states", "NAME", "as_parameter|bfloat16|8bit", kWork,
               "Precision of its moments", "pe"},
    OptionInfo{Option::Clip, "--clip", "NORM", "none", kWork, "Clip the gradient norm; none: do not", "pe"},
    OptionInfo{Option::Flavour, "--flavour", "NAME", "transformers|transformers-repeat-kv|torchtitan", kWork,
               "Whose model code runs", "pe"},
    OptionInfo{Option::AllocConf, "--alloc-conf", "TEXT", "", kWork,
               "PYTORCH_ALLOC_CONF, such as expandable_segments:True", "pey"},

    OptionInfo{Option::Strategy, "--strategy", "NAME",
               "FULL_SHARD|SHARD_GRAD_OP|NO_SHARD|HYBRID_SHARD|_HYBRID_SHARD_ZERO2", kPlan,
               "Sharding strategy in FSDP1's names", "pe"},
    OptionInfo{Option::Shard, "--shard", "N", "", kPlan, "GPUs that share one copy of the model", "pe"},
    OptionInfo{Option::Replicate, "--replicate", "N", "", kPlan, "Copies of the model", "pe"},
    OptionInfo{Option::Reshard, "--reshard", "WHAT", "true|false", kPlan,
               "reshard_after_forward: true, false, a smaller world size, keep-last:4", "pe"},
    OptionInfo{Option::Wrap, "--wrap", "WHAT", "blocks|root", kPlan,
               "Units: blocks, 4 (blocks in one), root, or names with commas: model.layers.*, class names", "pe"},
    OptionInfo{Option::WrapEnds, "--wrap-ends", "yes|no", "yes|no", kPlan, "Embeddings and heads as units of their own",
               "pe"},
    OptionInfo{Option::Checkpoint, "--checkpoint", "WHAT", "none|full|selective", kPlan,
               "Activation checkpointing: none, full, selective, 12 (blocks), selective:12", "pe"},
    OptionInfo{Option::Offload, "--offload", "yes|no", "yes|no", kPlan,
               "Parameters, gradients and optimizer on the host", "pe"},
    OptionInfo{Option::Prefetch, "--prefetch", "N", "", kPlan, "Units gathered ahead in forward", "pe"},
    OptionInfo{Option::BackwardPrefetch, "--backward-prefetch", "N", "", kPlan, "Units gathered ahead in backward",
               "pe"},

    OptionInfo{Option::Steps, "--steps", "N", "", kRehearsal,
               "Optimizer steps, after which the script is stopped; 3 when not given, 0: run to its end", "rx"},
    OptionInfo{Option::Timeout, "--timeout", "TIME", "", kRehearsal,
               "Longest that one rank may take, such as 90s; 10min when not given", "rx"},
    OptionInfo{Option::RecordStream, "--record-stream", "WHEN", "auto|done|hold", kRehearsal,
               "When memory that another stream used is free again: done (at once), hold (as late as can be), auto "
               "(both, where it matters)",
               "r"},
    OptionInfo{Option::Routing, "--routing", "HOW", "none|balanced", kRehearsal,
               "Which experts tokens go to: balanced (to all the same number), none (all zeros)", "r"},
    OptionInfo{Option::NcclBytes, "--nccl-bytes", "SIZE", "", kRehearsal,
               "Device memory of every NCCL communicator; else by its size and the machines", "r"},
    OptionInfo{Option::ContextBytes, "--context-bytes", "SIZE", "", kRehearsal,
               "Device memory of the CUDA context; else the GPU's", "r"},
    OptionInfo{Option::CudnnWorkspace, "--cudnn-workspace", "SIZE", "", kRehearsal,
               "Workspace that every cuDNN plan asks for; 0B when not given", "r"},
    OptionInfo{Option::Python, "--python", "PATH", "", kRehearsal, "Python that has torch, to rehearse a plan", "r"},
    OptionInfo{Option::Snapshot, "--snapshot", "FILE", "", kRehearsal, "Write a memory snapshot for PyTorch's viewer",
               "r"},
    OptionInfo{Option::AllocatorTrace, "--trace", "FILE", "", kRehearsal,
               "Write every event of the allocator; of an execution its last step, for Perfetto", "rx"},
    OptionInfo{Option::Against, "--against", "FILE", "", kRehearsal,
               "Compare with a plan, or with a report that --json printed", "r"},
    OptionInfo{Option::Tolerance, "--tolerance", "SHARE", "", kRehearsal,
               "End with 1 when a compared term is further off than this, such as 2%", "rox"},

    OptionInfo{Option::Ranks, "--ranks", "N", "", kExecution, "Processes to start; as many as the plan has ranks", "x"},
    OptionInfo{Option::Device, "--device", "KIND", "cpu|cuda", kExecution,
               "Processors over Gloo, or GPUs over NCCL; GPUs when the plan is for some and they are here", "x"},
    OptionInfo{Option::Seed, "--seed", "N", "", kExecution, "Seed of weights and data; 0 when not given", "x"},
    OptionInfo{Option::Reduce, "--reduce", "HOW", "direct|parity", kExecution,
               "How gradients are summed: direct, or parity (Gloo's own, in PyTorch's order)", "x"},
    OptionInfo{Option::RunFolder, "--run-dir", "FOLDER", "", kExecution,
               "Keep the plan, its prediction, and each rank's log, report and trace here", "x"},
    OptionInfo{Option::Calibration, "--calibration", "FILE", "", kExecution,
               "Predict with what an earlier run wrote here, and write what this one teaches", "x"},
    OptionInfo{Option::Weights, "--weights", "FILE...", "", kExecution,
               "Parameters from safetensors files, a folder of them or an index; else from the seed", "x", true, true},
    OptionInfo{Option::Tokens, "--tokens", "FILE", "", kExecution,
               "Token ids of a language model, raw or .npy; else data from the seed", "x"},
    OptionInfo{Option::TokenDtype, "--token-dtype", "DTYPE", "uint16|int32|uint32|int64", kExecution,
               "Of raw ids; by the vocabulary when not given", "x"},
    OptionInfo{Option::CheckpointFolder, "--checkpoint-dir", "FOLDER", "", kExecution, "Write checkpoints here", "x"},
    OptionInfo{Option::CheckpointEvery, "--every", "N", "", kExecution,
               "Steps from one checkpoint to the next; only after the last step when not given", "x"},
    OptionInfo{Option::CheckpointKeep, "--keep", "N", "", kExecution, "Checkpoints that are left; all when not given",
               "x"},
    OptionInfo{Option::Resume, "--resume", "FOLDER", "latest", kExecution,
               "Go on from a checkpoint, or from the latest of --checkpoint-dir", "x"},

    OptionInfo{Option::DeviceMemory, "--device-memory", "SIZE", "", kReplay,
               "Memory of the device, such as 16G; else the recording's, where it says", "y"},

    OptionInfo{Option::Output, "-o,--output", "FILE", "", kOutput,
               "Write the plan to a file; of a rehearsal or a comparison, what --json prints", "peroxt"},
    OptionInfo{Option::Force, "--force", "", "", kOutput, "Overwrite files", "pseroxt"},
    OptionInfo{Option::Json, "--json", "", "", kOutput, "Same as --format json", "psemgdroyx"},
    OptionInfo{Option::Expanded, "--expanded", "", "", kOutput, "Write every module, tensor and op of a model, as JSON",
               "m"},
    OptionInfo{Option::OutputFormat, "--format", "NAME", "table|text|json|csv|md|trace", kOutput,
               "How to print the result (trace: of a replay only)", "psemgdroyx"},
    OptionInfo{Option::Events, "--events", "FILE", "", kOutput, "Write the predicted timeline to a file, as JSON",
               "pse"},
    OptionInfo{Option::Rank, "--rank", "N", "", kOutput,
               "Report the memory of this rank; 0 when not given. A rehearsal also takes 0,5 and all and worst",
               "psert"},
    OptionInfo{Option::ExportTo, "--to", "FORMAT", "chrome|memviz|csv", kOutput,
               "chrome (trace of streams and memory), memviz (snapshot for pytorch.org/memory_viz), csv", "t"},
    OptionInfo{Option::Color, "--color", "WHEN", "auto|always|never", kOutput, "Colours", "*"},
    OptionInfo{Option::Verbose, "--verbose", "", "", kOutput, "Say more: all terms, sources and plans of the front",
               "pseroyxt"},
    OptionInfo{Option::Quiet, "--quiet", "", "", kOutput, "Print the verdict only", "pseroyxt"},
    OptionInfo{Option::Help, "-h,--help", "", "", kOutput, "Show this help", "*"},
    OptionInfo{Option::Version, "--version", "", "", kOutput, "Show the version", "*"},
};

constexpr bool follows_the_enums() {
  for (std::size_t i = 0; i < kOptions.size(); ++i) {
    if (static_cast<std::size_t>(kOptions[i].option) != i) return false;
  }
  for (std::size_t i = 0; i < kCommands.size(); ++i) {
    if (static_cast<std::size_t>(kCommands[i].command) != i) return false;
  }
  return kOptions.size() == static_cast<std::size_t>(Option::Version) + 1 &&
         kCommands.size() == static_cast<std::size_t>(Command::Completions) + 1;
}
static_assert(follows_the_enums(), "info_of takes the enumerator as the index");

}  // namespace

std::span<const CommandInfo> commands() {
  return kCommands;
}

const CommandInfo& info_of(Command command) {
  return kCommands[static_cast<std::size_t>(command)];
}

std::span<const OptionInfo> options() {
  return kOptions;
}

const OptionInfo& info_of(Option option) {
  return kOptions[static_cast<std::size_t>(option)];
}

std::string_view flag_of(Option option) {
  const std::string_view names = info_of(option).names;
  const std::size_t begin = names.find("--");
  return names.substr(begin, names.find(',', begin) - begin);
}

std::optional<std::string> CommandLine::value(Option option) const {
  const std::vector<std::string>& given = all(option);
  if (given.empty()) return std::nullopt;
  return given.back();
}

}  // namespace fsdp::planner

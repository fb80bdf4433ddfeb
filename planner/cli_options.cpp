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
                "Run a training script, or a plan, with the real PyTorch, without a GPU, against a stub driver."},
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
constexpr std::string_view kWhatIf = "What if (instead of what the plan says)";
constexpr std::string_view kRehearsal = "Rehearsal";
constexpr std::string_view kExecution = "Execution";
constexpr std::string_view kTraining = "Training";
constexpr std::string_view kReplay = "Replay";
constexpr std::string_view kOutput = "Output";

constexpr std::array kOptions = {
    OptionInfo{Option::Gpus, "--gpus,--nproc-per-node", "N", "", kMachines, "GPUs per node", "psertx"},
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

    OptionInfo{Option::Recipe, "--recipe", "NAME", "", kWork, "Way to train, of those that the model has", "pm"},
    OptionInfo{Option::Batch, "--batch", "N", "", kWork, "Samples per GPU and micro-batch", "pm"},
    OptionInfo{Option::Sequence, "--seq", "N", "", kWork, "Tokens per sample, such as 4096 or 4k", "pm"},
    OptionInfo{Option::GlobalBatch, "--global-batch", "N", "", kWork,
               "Samples per optimizer step, over all GPUs; micro-batch and accumulation are searched", "p"},
    OptionInfo{Option::Accumulate, "--accumulate", "N", "", kWork, "Micro-batches per optimizer step", "pse"},
    OptionInfo{Option::SetDimension, "--set", "NAME=VALUE", "", kWork, "Size of any other dimension of the model", "pm",
               true},
    OptionInfo{Option::Trainable, "--trainable", "PATTERN...", "", kWork, "Train only the parameters that match", "pm",
               true, true},
    OptionInfo{Option::Freeze, "--freeze,--frozen", "PATTERN...", "", kWork, "Freeze the parameters that match", "pm",
               true, true},
    OptionInfo{Option::Precision, "--precision", "NAME", "bf16|mixed|fp16|fp16-mixed|fp32", kWork,
               "bf16, fp16, fp32: all in that dtype; mixed: fp32 weights, bf16 compute, fp32 reduce", "pse"},
    OptionInfo{Option::ReduceDtype, "--reduce-dtype", "DTYPE", "float32|bfloat16|float16", kWork,
               "Gradients are reduced in it", "pse"},
    OptionInfo{Option::OptimizerName, "--optimizer", "NAME", "adamw|adam|sgd", kWork, "Optimizer", "pse"},
    OptionInfo{Option::OptimizerImpl, "--optimizer-impl", "NAME", "foreach|fused|for_loop", kWork,
               "How PyTorch runs it", "pse"},
    OptionInfo{Option::OptimizerStatesName, "--states", "NAME", "as_parameter|bfloat16|8bit", kWork,
               "Precision of its moments", "pse"},
    OptionInfo{Option::Clip, "--clip", "NORM", "none", kWork, "Clip the gradient norm; none: do not", "pse"},
    OptionInfo{Option::Flavour, "--flavour", "NAME", "transformers|transformers-repeat-kv|torchtitan", kWork,
               "Whose model code runs", "psem"},
    OptionInfo{Option::AllocConf, "--alloc-conf", "TEXT", "", kWork,
               "PYTORCH_ALLOC_CONF, such as expandable_segments:True", "psey"},

    OptionInfo{Option::Strategy, "--strategy", "NAME",
               "FULL_SHARD|SHARD_GRAD_OP|NO_SHARD|HYBRID_SHARD|_HYBRID_SHARD_ZERO2", kPlan,
               "Sharding strategy in FSDP1's names", "p"},
    OptionInfo{Option::Shard, "--shard", "N", "", kPlan, "GPUs that share one copy of the model", "p"},
    OptionInfo{Option::Replicate, "--replicate", "N", "", kPlan, "Copies of the model", "p"},
    OptionInfo{Option::Reshard, "--reshard", "WHAT", "true|false", kPlan,
               "reshard_after_forward: true, false, a smaller world size, keep-last:4", "p"},
    OptionInfo{Option::Wrap, "--wrap", "WHAT", "blocks|root", kPlan,
               "Units: blocks, 4 (blocks in one), root, or names with commas: model.layers.*, class names", "p"},
    OptionInfo{Option::WrapEnds, "--wrap-ends", "yes|no", "yes|no", kPlan, "Embeddings and heads as units of their own",
               "p"},
    OptionInfo{Option::Checkpoint, "--checkpoint", "WHAT", "none|full|selective", kPlan,
               "Activation checkpointing: none, full, selective, 12 (blocks), selective:12", "pse"},
    OptionInfo{Option::Offload, "--offload", "yes|no", "yes|no", kPlan,
               "Parameters, gradients and optimizer on the host", "pse"},
    OptionInfo{Option::Prefetch, "--prefetch", "N", "", kPlan, "Units gathered ahead in forward", "pse"},
    OptionInfo{Option::BackwardPrefetch, "--backward-prefetch", "N", "", kPlan, "Units gathered ahead in backward",
               "pse"},

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
    OptionInfo{Option::AllowWrites, "--allow-writes", "", "", kRehearsal,
               "Let the script write to your disk; else what it writes goes to a folder that is thrown away", "r"},
    OptionInfo{Option::NcclBytes, "--nccl-bytes", "SIZE", "", kRehearsal,
               "Device memory of every NCCL communicator; else by its size and the machines", "r"},
    OptionInfo{Option::ContextBytes, "--context-bytes", "SIZE", "", kRehearsal,
               "Device memory of the CUDA context; else the GPU's", "r"},
    OptionInfo{Option::CudnnWorkspace, "--cudnn-workspace", "SIZE", "", kRehearsal,
               "Workspace of every cuDNN plan; cuDNN's own when not given", "r"},
    OptionInfo{
        Option::FindBatch, "--find-batch", "WORDS", "", kRehearsal,
        "Rehearse with one batch after the other, and say the largest that fits: the script's own option, such as "
        "'--batch-size {}'",
        "r"},
    OptionInfo{Option::Python, "--python", "PATH", "", kRehearsal, "Python that has torch, to rehearse a plan", "rx"},
    OptionInfo{Option::Snapshot, "--snapshot", "FILE", "", kRehearsal, "Write a memory snapshot for PyTorch's viewer",
               "r"},
    OptionInfo{Option::AllocatorTrace, "--trace", "FILE", "", kRehearsal,
               "Write every event of the allocator; of an execution its last step, for Perfetto", "rx"},
    OptionInfo{Option::Html, "--html", "FILE", "", kRehearsal, "Write the answer as one page for a browser", "r"},
    OptionInfo{Option::Against, "--against", "FILE", "", kRehearsal,
               "Compare with a plan, or with a report that --json printed", "r"},
    OptionInfo{Option::Tolerance, "--tolerance", "SHARE", "", kRehearsal,
               "End with 1 when a compared term is further off than this, such as 2%", "rox"},

    OptionInfo{Option::Proof, "--proof", "", "", kExecution,
               "Prove it on all GPUs of the node: against the prediction, PyTorch's FSDP2 and the stub GPU", "x"},
    OptionInfo{Option::Ranks, "--ranks", "N", "", kExecution, "Processes to start; as many as the plan has ranks", "x"},
    OptionInfo{Option::Device, "--device", "KIND", "cpu|cuda", kExecution,
               "Processors over Gloo, or GPUs over NCCL; GPUs when the plan is for some and they are here", "x"},
    OptionInfo{Option::RunFolder, "--run-dir", "FOLDER", "", kExecution,
               "Keep the plan, its prediction, and each rank's log, report and trace here", "x"},
    OptionInfo{Option::Calibration, "--calibration", "FILE", "", kExecution,
               "Predict with what an earlier run wrote here, and write what this one teaches", "x"},
    OptionInfo{Option::Seed, "--seed", "N", "", kExecution, "Seed of weights and data; 0 when not given", "x"},
    OptionInfo{Option::Reduce, "--reduce", "HOW", "direct|parity", kExecution,
               "How gradients are summed: direct, or parity (Gloo's own, in PyTorch's order)", "x"},
    OptionInfo{Option::Weights, "--weights", "FILE...", "", kExecution,
               "Parameters from safetensors files, a folder of them or an index; else from the seed", "x", true, true},
    OptionInfo{Option::Tokens, "--tokens", "FILE...", "", kExecution,
               "Token ids of a language model, raw or .npy; else data from the seed", "x", true, true},
    OptionInfo{Option::TokenDtype, "--token-dtype", "DTYPE", "uint16|int32|uint32|int64", kExecution,
               "Of raw ids; by the vocabulary when not given", "x"},
    OptionInfo{Option::Labels, "--labels", "FILE...", "", kExecution,
               "A file of labels for each of --tokens; -100 is not to be predicted", "x", true, true},
    OptionInfo{Option::Shuffle, "--shuffle", "SEED", "", kExecution,
               "Samples of --tokens in another order in each epoch; in that of the files when not given", "x"},
    OptionInfo{Option::DocumentEnd, "--document-end", "ID", "", kExecution,
               "Token behind which nothing is to be predicted", "x"},
    OptionInfo{Option::EvaluateFiles, "--evaluate", "FILE...", "", kExecution,
               "Token ids that are held out: their loss, without dropout", "x", true, true},
    OptionInfo{Option::EvaluateEvery, "--evaluate-every", "N", "", kExecution,
               "Steps from one evaluation to the next; only after the last step when not given", "x"},
    OptionInfo{Option::EvaluateSamples, "--evaluate-samples", "N", "", kExecution,
               "Most samples of an evaluation; all when not given", "x"},
    OptionInfo{Option::CheckpointFolder, "--checkpoint-dir", "FOLDER", "", kExecution, "Write checkpoints here", "x"},
    OptionInfo{Option::CheckpointEvery, "--every", "N", "", kExecution,
               "Steps from one checkpoint to the next; only after the last step when not given", "x"},
    OptionInfo{Option::CheckpointKeep, "--keep", "N", "", kExecution, "Checkpoints that are left; all when not given",
               "x"},
    OptionInfo{Option::Resume, "--resume", "FOLDER", "latest", kExecution,
               "Go on from a checkpoint, or from the latest of --checkpoint-dir", "x"},
    OptionInfo{Option::SaveParameters, "--save-parameters", "FILE", "", kExecution,
               "Write all parameters at the end, as safetensors", "x"},
    OptionInfo{Option::Metrics, "--metrics", "FILE", "", kExecution, "Write a line of JSON for each step, as it comes",
               "x"},
    OptionInfo{Option::MeasureEvery, "--measure-every", "N", "", kExecution,
               "Measure and print every Nth step; 1 when not given", "x"},

    OptionInfo{Option::LearningRate, "--lr", "RATE", "", kTraining, "Learning rate; 1e-4 when not given", "x"},
    OptionInfo{Option::Schedule, "--schedule", "NAME", "constant|linear|cosine", kTraining,
               "How it goes on after the warm-up; constant when not given", "x"},
    OptionInfo{Option::Warmup, "--warmup", "N", "", kTraining, "Steps in which it rises from 0", "x"},
    OptionInfo{Option::ScheduleSteps, "--schedule-steps", "N", "", kTraining,
               "Length of the schedule with its warm-up; --steps when not given", "x"},
    OptionInfo{Option::MinRateRatio, "--min-lr-ratio", "SHARE", "", kTraining,
               "Share of the rate at which cosine ends, such as 0.1", "x"},
    OptionInfo{Option::Betas, "--betas", "B1 B2", "", kTraining, "Of Adam and AdamW; 0.9 0.999 when not given", "x",
               true, true},
    OptionInfo{Option::Epsilon, "--eps", "X", "", kTraining, "Of Adam and AdamW; 1e-8 when not given", "x"},
    OptionInfo{Option::WeightDecay, "--weight-decay", "X", "", kTraining, "In the place of the plan's", "x"},
    OptionInfo{Option::NoDecay, "--no-decay", "WHAT", "norms|biases|norms,biases", kTraining,
               "What weight decay leaves alone", "x"},
    OptionInfo{Option::Accumulation, "--accumulation", "HOW", "mean|sum", kTraining,
               "What the gradients of a step's micro-batches become; their mean when not given", "x"},
    OptionInfo{Option::NonfiniteLoss, "--nonfinite-loss", "WHAT", "stop|continue", kTraining,
               "When a loss is infinite or no number; stop when not given", "x"},

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
               "Report the memory of this rank; the one that needs most when not given. A rehearsal also takes 0,5 and "
               "all and worst",
               "psert"},
    OptionInfo{Option::ExportTo, "--to", "FORMAT", "chrome|memviz|csv", kOutput,
               "chrome (trace of streams and memory), memviz (snapshot for pytorch.org/memory_viz), csv", "t"},
    OptionInfo{Option::Color, "--color", "WHEN", "auto|always|never", kOutput, "Colors", "*"},
    OptionInfo{Option::Verbose, "--verbose", "", "", kOutput, "Say more: all terms, sources and plans of the front",
               "pseroyxt"},
    OptionInfo{Option::Quiet, "--quiet", "", "", kOutput, "Print the verdict only", "pseroyxt"},
    OptionInfo{Option::Help, "-h,--help", "", "", kOutput, "Show this help", "*"},
    OptionInfo{Option::Version, "--version", "", "", kOutput, "Show the version", "*"},
};

/// Where an option means something else, or less, for some commands.
struct CommandWords {
  Option option = Option::Help;
  std::string_view commands;  ///< Keys.
  OptionWords words;
};
constexpr std::array kCommandWords = {
    CommandWords{Option::Gpus, "x", {kExecution, "With --proof: GPUs to use, as many as the plan has ranks"}},
    CommandWords{Option::Python, "x", {kExecution, "With --proof: Python that has torch, for PyTorch's FSDP2"}},
    CommandWords{Option::Memory, "x", {kExecution, "Limit for the tensors of each rank, such as 2G"}},
    CommandWords{Option::Steps, "x", {kExecution, "Optimizer steps; 4 when not given"}},
    CommandWords{
        Option::Timeout, "x", {kExecution, "Longest that a rank waits for another, such as 90s; 5min when not given"}},
    CommandWords{Option::AllocatorTrace, "r", {kRehearsal, "Write every event of the allocator"}},
    CommandWords{Option::AllocatorTrace, "x", {kExecution, "Write the measured trace of the last step, for Perfetto"}},
    CommandWords{Option::Tolerance, "o", {"Comparison", "End with 1 when a term is further off than this, such as 2%"}},
    CommandWords{Option::Tolerance, "x", {kExecution, "End with 1 when a term is further off than this, such as 2%"}},
    CommandWords{Option::Output, "pe", {kOutput, "Write the plan to a file"}},
    CommandWords{Option::Output, "t", {kOutput, "Write to this file"}},
    CommandWords{Option::Output, "rox", {kOutput, "Write what --json prints to a file"}},
    CommandWords{Option::OutputFormat, "psemgdrox", {kOutput, "How to print the result: table, json, csv or md"}},
    CommandWords{Option::OutputFormat,
                 "y",
                 {kOutput, "How to print the result: table, json, csv, md, or trace (every request)"}},
    CommandWords{
        Option::Rank, "pset", {kOutput, "Report the memory of this rank; the one that needs most when not given"}},
    CommandWords{Option::Rank, "r", {kRehearsal, "Ranks to play: 5, or 0,5, or all, or worst; 0 when not given"}},
    CommandWords{Option::Verbose,
                 "pse",
                 {kOutput,
                  "Print everything: proof, traffic, times, faster plans that do not fit, all suggestions and "
                  "assumptions"}},
    CommandWords{Option::Verbose, "r", {kOutput, "Say more, and pass on what the script prints"}},
    CommandWords{Option::Verbose, "oyxt", {kOutput, "Say more"}},
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

std::span<const OptionInfo> handed_on() {
  const auto first = kOptions.begin() + static_cast<std::ptrdiff_t>(Option::Seed);
  const auto last = kOptions.begin() + static_cast<std::ptrdiff_t>(Option::NonfiniteLoss);
  return {first, last + 1};
}

OptionWords words_of(const OptionInfo& info, Command command) {
  for (const CommandWords& each : kCommandWords) {
    const bool is_of_command = each.commands.find(info_of(command).key) != std::string_view::npos;
    if (each.option == info.option && is_of_command) return each.words;
  }
  const bool is_of_plan_file = command == Command::Simulate || command == Command::Explain;
  const bool is_changed = is_of_plan_file && (info.group == kWork || info.group == kPlan);
  return {is_changed ? kWhatIf : info.group, info.help};
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

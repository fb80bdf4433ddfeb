#include "command/cli_options.h"

#include <array>
#include <cassert>

namespace fsdp::planner {

namespace {

constexpr std::array kCommands = {
    CommandInfo{Command::Plan, 'p', "plan", "MODEL", "Find the fastest plan that fits; the default."},
    CommandInfo{Command::Simulate, 's', "simulate", "PLAN", "Predict what the plan of a file costs."},
    CommandInfo{Command::Explain, 'e', "explain", "PLAN",
                "Show what sets a plan's peak memory, and what each suggestion would change."},
    CommandInfo{Command::Rehearse, 'r', "rehearse", "PLAN|-- COMMAND",
                "Run a training script, or a plan, with the real PyTorch on a machine without a GPU."},
    CommandInfo{Command::Execute, 'x', "execute", "PLAN",
                "Train a plan on this machine and compare with its prediction."},
    CommandInfo{Command::Replay, 'y', "replay", "FILE",
                "Replay the allocations of a recorded run under other allocator settings."},
    CommandInfo{Command::Compare, 'o', "compare", "PREDICTED MEASURED",
                "Compare two reports, largest difference first."},
    CommandInfo{Command::Export, 't', "export", "PLAN",
                "Write a predicted step for Perfetto, PyTorch's memory viewer or a spreadsheet."},
    CommandInfo{Command::Schema, 'c', "schema", "[NAME]", "Print the JSON Schema of model, cluster, plan or report."},
    CommandInfo{Command::Models, 'm', "models", "[MODEL]", "List the shipped models; with --expanded, write one out."},
    CommandInfo{Command::Gpus, 'g', "gpus", "", "List the known GPUs and clusters."},
    CommandInfo{Command::Doctor, 'd', "doctor", "", "Show what is installed and what is missing."},
    CommandInfo{Command::Completions, 'k', "completions", "SHELL", "Print completions for bash, zsh or fish."},
};

constexpr std::string_view kMachines = "Machines";
constexpr std::string_view kWork = "Work";
constexpr std::string_view kPlan = "Plan (what you leave out is searched)";
constexpr std::string_view kWhatIf = "What if (overrides the plan)";
constexpr std::string_view kRehearsal = "Rehearsal";
constexpr std::string_view kExecution = "Execution";
constexpr std::string_view kTraining = "Training";
constexpr std::string_view kReplay = "Replay";
constexpr std::string_view kOutput = "Output";

/// An option that makes a choice of a plan: the same name, texts and help.
constexpr OptionInfo of_choice(PlanChoice choice, std::string_view names, std::string_view value,
                               std::string_view group, std::string_view commands, bool repeatable = false,
                               bool many = false) {
  const PlanChoiceInfo& info = info_of(choice);
  return {option_of(choice), names, value, info.values, group, info.help, commands, repeatable, many};
}

constexpr std::array kOptions = {
    of_choice(PlanChoice::Gpus, "--gpus,--nproc-per-node", "N", kMachines, "psertx"),
    of_choice(PlanChoice::Nodes, "--nodes,--nnodes", "N", kMachines, "psert"),
    of_choice(PlanChoice::GpuName, "--gpu", "NAME", kMachines, "psert"),
    of_choice(PlanChoice::Memory, "--mem,--memory", "SIZE", kMachines, "psertx"),
    of_choice(PlanChoice::ClusterFile, "--cluster", "FILE|NAME", kMachines, "psert"),

    of_choice(PlanChoice::IntraLinkName, "--intra-link", "KIND", kMachines, "psert"),
    of_choice(PlanChoice::IntraBandwidth, "--intra-bandwidth", "RATE", kMachines, "psert"),
    of_choice(PlanChoice::NetworkName, "--network", "KIND", kMachines, "psert"),
    of_choice(PlanChoice::NicBandwidth, "--nic-bandwidth", "RATE", kMachines, "psert"),
    of_choice(PlanChoice::GpusPerNic, "--gpus-per-nic", "N", kMachines, "psert"),
    of_choice(PlanChoice::HostMemory, "--host-mem", "SIZE", kMachines, "psert"),

    of_choice(PlanChoice::Recipe, "--recipe", "NAME", kWork, "pm"),
    of_choice(PlanChoice::Batch, "--batch", "N", kWork, "pm"),
    of_choice(PlanChoice::Sequence, "--seq", "N", kWork, "pm"),
    of_choice(PlanChoice::GlobalBatch, "--global-batch", "N", kWork, "p"),
    of_choice(PlanChoice::Accumulate, "--accumulate", "N", kWork, "pse"),
    of_choice(PlanChoice::SetDimension, "--set", "NAME=VALUE", kWork, "pm", true),
    of_choice(PlanChoice::Trainable, "--trainable", "PATTERN...", kWork, "pm", true, true),
    of_choice(PlanChoice::Freeze, "--freeze,--frozen", "PATTERN...", kWork, "pm", true, true),
    of_choice(PlanChoice::Precision, "--precision", "NAME", kWork, "pse"),
    of_choice(PlanChoice::ReduceDtype, "--reduce-dtype", "DTYPE", kWork, "pse"),
    of_choice(PlanChoice::OptimizerName, "--optimizer", "NAME", kWork, "pse"),
    of_choice(PlanChoice::OptimizerImpl, "--optimizer-impl", "NAME", kWork, "pse"),
    of_choice(PlanChoice::OptimizerStatesName, "--optimizer-state-dtype", "NAME", kWork, "pse"),
    of_choice(PlanChoice::Clip, "--clip-grad-norm", "NORM", kWork, "pse"),
    of_choice(PlanChoice::Flavor, "--flavor", "NAME", kWork, "psem"),
    of_choice(PlanChoice::AllocConf, "--alloc-conf", "TEXT", kWork, "psey"),

    of_choice(PlanChoice::Strategy, "--strategy", "NAME", kPlan, "p"),
    of_choice(PlanChoice::Shard, "--shard", "N", kPlan, "p"),
    of_choice(PlanChoice::Replicate, "--replicate", "N", kPlan, "p"),
    of_choice(PlanChoice::Reshard, "--reshard", "WHAT", kPlan, "p"),
    of_choice(PlanChoice::Wrap, "--wrap", "WHAT", kPlan, "p"),
    of_choice(PlanChoice::WrapEnds, "--wrap-ends", "yes|no", kPlan, "p"),
    of_choice(PlanChoice::Checkpoint, "--activation-checkpointing", "WHAT", kPlan, "pse"),
    of_choice(PlanChoice::Offload, "--offload", "yes|no", kPlan, "pse"),
    of_choice(PlanChoice::GradientSync, "--gradient-sync", "WHEN", kPlan, "pse"),
    of_choice(PlanChoice::Prefetch, "--prefetch", "N", kPlan, "pse"),
    of_choice(PlanChoice::BackwardPrefetch, "--backward-prefetch", "N", kPlan, "pse"),

    OptionInfo{Option::AtMost, "--at-most", "N", "", kMachines,
               "GPUs in all. With it, or with lists (--gpus 4,8 --gpu L4,A10G), the best of several machines is found",
               "p"},
    OptionInfo{Option::Objective, "--objective", "WHAT", "time|cost", kMachines,
               "Of several machines: the one with most samples a second, or with the cheapest sample", "p"},
    OptionInfo{Option::Price, "--price", "PRICES", "", kMachines,
               "What an hour of one GPU costs: 1.5, or by name, L4=0.8,A10G=1.2", "p"},

    OptionInfo{Option::Steps, "--steps", "N", "", kRehearsal,
               "Stop the script after this many optimizer steps (default: 3; 0: run to its end)", "rx"},
    OptionInfo{Option::Timeout, "--timeout", "TIME", "", kRehearsal,
               "Time limit of one rank, such as 90s (default: 10min)", "rx"},
    OptionInfo{Option::RecordStream, "--record-stream", "WHEN", "auto|done|hold", kRehearsal,
               "When memory that another stream used becomes free: done (at once), hold (as late as possible), auto "
               "(both, where it matters)",
               "r"},
    OptionInfo{Option::Routing, "--routing", "HOW", "none|balanced", kRehearsal,
               "Expert routing: balanced, or none (all tokens to expert 0)", "r"},
    OptionInfo{Option::AllowWrites, "--allow-writes", "", "", kRehearsal,
               "Let the script write to your disk (default: its writes go to a temporary folder)", "r"},
    OptionInfo{Option::NcclBytes, "--nccl-bytes", "SIZE", "", kRehearsal,
               "Device memory of each NCCL communicator (default: estimated by its size and the machines)", "r"},
    OptionInfo{Option::ContextBytes, "--context-bytes", "SIZE", "", kRehearsal,
               "Device memory of the CUDA context (default: that of the GPU)", "r"},
    OptionInfo{Option::CudnnWorkspace, "--cudnn-workspace", "SIZE", "", kRehearsal,
               "Workspace of every cuDNN plan (default: cuDNN's own)", "r"},
    OptionInfo{
        Option::FindBatch, "--find-batch", "WORDS", "", kRehearsal,
        "Find the largest batch that fits. Give the script's own option, with {} for the number: '--batch-size {}'",
        "r"},
    OptionInfo{Option::Python, "--python", "PATH", "", kRehearsal, "Python with torch, to rehearse a plan", "rx"},
    OptionInfo{Option::Snapshot, "--snapshot", "FILE", "", kRehearsal, "Write a memory snapshot for PyTorch's viewer",
               "r"},
    OptionInfo{Option::AllocatorTrace, "--allocator-trace", "FILE", "", kRehearsal,
               "Write every event of the allocator", "r"},
    OptionInfo{Option::Html, "--html", "FILE", "", kRehearsal, "Write the answer as one HTML page", "r"},
    OptionInfo{Option::Against, "--against", "FILE", "", kRehearsal,
               "Compare with a plan, or with a report printed by --json", "r"},
    OptionInfo{Option::Tolerance, "--tolerance", "SHARE", "", kRehearsal,
               "Exit 1 if any compared value is off by more than this, such as 2%", "rox"},

    OptionInfo{Option::Proof, "--proof", "", "", kExecution,
               "Prove it on all GPUs of the node: compare with the prediction, PyTorch's FSDP2 and the stub GPU", "x"},
    OptionInfo{Option::Ranks, "--ranks", "N", "", kExecution,
               "Processes to start (default: one for each rank of the plan)", "x"},
    OptionInfo{Option::Device, "--device", "KIND", "cpu|cuda", kExecution,
               "cpu (over Gloo) or cuda (over NCCL); default: GPUs if the plan is for GPUs and this machine has them",
               "x"},
    OptionInfo{Option::RunFolder, "--run-dir", "FOLDER", "", kExecution,
               "Keep the plan, its prediction, and each rank's log, report and trace in this folder", "x"},
    OptionInfo{Option::ChromeTrace, "--chrome-trace", "FILE", "", kExecution,
               "Write the measured trace of the last step, for Perfetto", "x"},
    OptionInfo{Option::Calibration, "--calibration", "FILE", "", kExecution,
               "Predict with this calibration if it exists, and update it with what this run measures", "x"},
    OptionInfo{Option::Seed, "--seed", "N", "", kExecution, "Seed of weights and data (default: 0)", "x"},
    OptionInfo{Option::Reduce, "--reduce", "HOW", "direct|parity", kExecution,
               "How gradients are summed: direct, or parity (Gloo's own, in PyTorch's order)", "x"},
    OptionInfo{Option::Weights, "--weights", "FILE...", "", kExecution,
               "Parameters from safetensors files, a folder of them or an index; else from the seed", "x", true, true},
    OptionInfo{Option::Tokens, "--tokens", "FILE...", "", kExecution,
               "Token ids of a language model, raw or .npy; else data from the seed", "x", true, true},
    OptionInfo{Option::TokenDtype, "--token-dtype", "DTYPE", "uint16|int32|uint32|int64", kExecution,
               "Dtype of raw token ids (default: by the vocabulary)", "x"},
    OptionInfo{Option::Labels, "--labels", "FILE...", "", kExecution,
               "A file of labels for each of --tokens; -100 is ignored", "x", true, true},
    OptionInfo{Option::Shuffle, "--shuffle", "SEED", "", kExecution,
               "Shuffle the samples of --tokens in each epoch, from this seed (default: file order)", "x"},
    OptionInfo{Option::DocumentEnd, "--document-end", "ID", "", kExecution,
               "End-of-document token: what follows it is not predicted", "x"},
    OptionInfo{Option::EvaluateFiles, "--evaluate", "FILE...", "", kExecution,
               "Held-out token ids: print their loss, without dropout", "x", true, true},
    OptionInfo{Option::EvaluateEvery, "--evaluate-every", "N", "", kExecution,
               "Evaluate every N steps (default: only after the last step)", "x"},
    OptionInfo{Option::EvaluateSamples, "--evaluate-samples", "N", "", kExecution,
               "Evaluate at most N samples (default: all)", "x"},
    OptionInfo{Option::CheckpointFolder, "--checkpoint-dir", "FOLDER", "", kExecution, "Write checkpoints here", "x"},
    OptionInfo{Option::CheckpointEvery, "--every", "N", "", kExecution,
               "Write a checkpoint every N steps (default: only after the last step)", "x"},
    OptionInfo{Option::CheckpointKeep, "--keep", "N", "", kExecution,
               "Keep only the newest N checkpoints (default: all)", "x"},
    OptionInfo{Option::Resume, "--resume", "FOLDER", "latest", kExecution,
               "Resume from a checkpoint, or from the latest of --checkpoint-dir", "x"},
    OptionInfo{Option::SaveParameters, "--save-parameters", "FILE", "", kExecution,
               "Write all parameters at the end, as safetensors", "x"},
    OptionInfo{Option::Metrics, "--metrics", "FILE", "", kExecution, "Write a line of JSON for each step as it ends",
               "x"},
    OptionInfo{Option::MeasureEvery, "--measure-every", "N", "", kExecution,
               "Measure and print every Nth step (default: 1)", "x"},

    OptionInfo{Option::LearningRate, "--lr", "RATE", "", kTraining, "Learning rate (default: 1e-4)", "x"},
    OptionInfo{Option::Schedule, "--schedule", "NAME", "constant|linear|cosine", kTraining,
               "Learning rate after the warm-up (default: constant)", "x"},
    OptionInfo{Option::Warmup, "--warmup", "N", "", kTraining, "Warm-up steps, in which the learning rate rises from 0",
               "x"},
    OptionInfo{Option::ScheduleSteps, "--schedule-steps", "N", "", kTraining,
               "Length of the schedule, warm-up included (default: --steps)", "x"},
    OptionInfo{Option::MinRateRatio, "--min-lr-ratio", "SHARE", "", kTraining,
               "Final share of the learning rate, for cosine, such as 0.1", "x"},
    OptionInfo{Option::Betas, "--betas", "B1 B2", "", kTraining, "Betas of Adam and AdamW (default: 0.9 0.999)", "x",
               true, true},
    OptionInfo{Option::Epsilon, "--eps", "X", "", kTraining, "Epsilon of Adam and AdamW (default: 1e-8)", "x"},
    OptionInfo{Option::WeightDecay, "--weight-decay", "X", "", kTraining, "Weight decay, instead of the plan's", "x"},
    OptionInfo{Option::NoDecay, "--no-decay", "WHAT", "norms|biases|norms,biases", kTraining,
               "Parameters without weight decay", "x"},
    OptionInfo{Option::Accumulation, "--accumulation", "HOW", "mean|sum", kTraining,
               "How gradients of micro-batches are combined (default: mean)", "x"},
    OptionInfo{Option::NonfiniteLoss, "--nonfinite-loss", "WHAT", "stop|continue", kTraining,
               "What to do when a loss is NaN or infinite (default: stop)", "x"},

    OptionInfo{Option::DeviceMemory, "--device-memory", "SIZE", "", kReplay,
               "Device memory, such as 16G (default: that of the recording, if known)", "y"},

    OptionInfo{Option::Output, "-o,--output", "FILE", "", kOutput,
               "Write the plan to a file; for a rehearsal or a comparison, what --json prints", "peroxt"},
    OptionInfo{Option::Force, "--force", "", "", kOutput, "Overwrite files", "peroxt"},
    OptionInfo{Option::Json, "--json", "", "", kOutput, "Same as --format json", "psemgdroyx"},
    OptionInfo{Option::Expanded, "--expanded", "", "", kOutput, "Write every module, tensor and op of a model, as JSON",
               "m"},
    OptionInfo{Option::OutputFormat, "--format", "NAME", "table|text|json|csv|md|trace", kOutput,
               "How to print the result (trace: replay only)", "psemgdroyx"},
    OptionInfo{Option::Rank, "--rank", "N", "", kOutput,
               "Report the memory of this rank (default: the rank that needs most). rehearse also accepts a list "
               "(0,5), all, or worst",
               "psert"},
    OptionInfo{Option::ExportTo, "--to", "FORMAT", "chrome|memviz|csv", kOutput,
               "chrome (trace of streams and memory), memviz (snapshot for pytorch.org/memory_viz), csv", "t"},
    OptionInfo{Option::Color, "--color", "WHEN", "auto|always|never", kOutput, "Colors", "*"},
    OptionInfo{Option::Verbose, "--verbose", "", "", kOutput, "Print more: all terms, sources and plans of the front",
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
    CommandWords{
        Option::Gpus, "x", {kExecution, "With --proof: number of GPUs, which must be that of the plan's ranks"}},
    CommandWords{Option::Python, "x", {kExecution, "With --proof: Python with torch, for PyTorch's FSDP2"}},
    CommandWords{Option::Memory, "x", {kExecution, "Limit on the tensors of each rank, such as 2G"}},
    CommandWords{Option::Steps, "x", {kExecution, "Optimizer steps (default: 4)"}},
    CommandWords{
        Option::Timeout, "x", {kExecution, "Longest that a rank waits for another, such as 90s (default: 5min)"}},
    CommandWords{
        Option::Tolerance, "o", {"Comparison", "Exit 1 if any compared value is off by more than this, such as 2%"}},
    CommandWords{
        Option::Tolerance, "x", {kExecution, "Exit 1 if any compared value is off by more than this, such as 2%"}},
    CommandWords{Option::Output, "pe", {kOutput, "Write the plan to a file"}},
    CommandWords{Option::Output, "t", {kOutput, "Write to this file"}},
    CommandWords{Option::Output, "rox", {kOutput, "Write what --json prints to a file"}},
    CommandWords{Option::OutputFormat, "psemgdrox", {kOutput, "How to print the result: table, json, csv or md"}},
    CommandWords{Option::OutputFormat,
                 "y",
                 {kOutput, "How to print the result: table, json, csv, md, or trace (every request)"}},
    CommandWords{Option::Rank, "pset", {kOutput, "Report the memory of this rank (default: the rank that needs most)"}},
    CommandWords{Option::Rank, "r", {kRehearsal, "Ranks to play: 5, a list (0,5), all, or worst (default: 0)"}},
    CommandWords{Option::Verbose,
                 "pse",
                 {kOutput,
                  "Print everything: proof, traffic, times, faster plans that do not fit, all suggestions and "
                  "assumptions"}},
    CommandWords{Option::Verbose, "r", {kOutput, "Print more, and pass on what the script prints"}},
    CommandWords{Option::Verbose, "oyxt", {kOutput, "Say more"}},
};

/// What the version before this one called options that make no choice of a plan; those say it themselves.
struct OldName {
  std::string_view name;
  std::string_view now;
  std::string_view commands;  ///< Keys.
};
constexpr std::array kOldNames = {
    OldName{"--trace", "--allocator-trace", "r"},
    OldName{"--trace", "--chrome-trace", "x"},
};

constexpr std::string_view first_long_name(std::string_view names) {
  const std::size_t begin = names.find("--");
  return names.substr(begin, names.find(',', begin) - begin);
}

constexpr bool follows_the_enums() {
  for (std::size_t i = 0; i < kOptions.size(); ++i) {
    if (static_cast<std::size_t>(kOptions[i].option) != i) return false;
  }
  for (std::size_t i = 0; i < kCommands.size(); ++i) {
    if (static_cast<std::size_t>(kCommands[i].command) != i) return false;
  }
  for (const PlanChoiceInfo& info : kPlanChoiceInfos) {
    if (first_long_name(kOptions[static_cast<std::size_t>(option_of(info.choice))].names) != info.place) return false;
  }
  return kOptions.size() == static_cast<std::size_t>(Option::Version) + 1 &&
         kCommands.size() == static_cast<std::size_t>(Command::Completions) + 1;
}
static_assert(follows_the_enums(), "info_of takes the enumerator as the index; an option of a choice has its name");

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
  return first_long_name(info_of(option).names);
}

std::string_view current_name(std::string_view name, Command command) {
  const char key = info_of(command).key;
  for (const OldName& old : kOldNames) {
    if (old.name == name && old.commands.find(key) != std::string_view::npos) return old.now;
  }
  // Only where the command takes it: fsdp-exec has a --checkpoint of its own, the folder.
  const std::optional<PlanChoice> choice = choice_of_place(name);
  if (!choice || info_of(option_of(*choice)).commands.find(key) == std::string_view::npos) return name;
  return place_of(*choice);
}

std::optional<std::string> CommandLine::value(Option option) const {
  const std::vector<std::string>& given = all(option);
  if (given.empty()) return std::nullopt;
  return given.back();
}

}  // namespace fsdp::planner

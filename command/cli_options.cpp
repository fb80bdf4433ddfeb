#include "command/cli_options.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "planner/space/choice_table.h"

namespace fsdp::command {

namespace {

constexpr std::array kCommands = {
    CommandInfo{Command::Plan, "plan", "MODEL",
                "Find the fastest plan that fits; the default. plan -- COMMAND captures a script first."},
    CommandInfo{Command::Simulate, "simulate", "PLAN", "Predict the costs of a plan file."},
    CommandInfo{Command::Explain, "explain", "PLAN",
                "Show what sets a plan's peak memory, and what each suggestion would change."},
    CommandInfo{Command::Fit, "fit", "MODEL",
                "Show the largest micro-batch and the longest sequence that fit each GPU. fit -- COMMAND captures a "
                "script first."},
    CommandInfo{
        Command::Check, "check", "FILE...|-- COMMAND",
        "Find known mistakes in configurations of accelerate, TRL, the Trainer, axolotl and DeepSpeed, without running "
        "anything."},
    CommandInfo{Command::Clock, "clock", "WHAT [SIZE]",
                "Show how long one collective, matrix product or attention takes: all_gather 256M, matmul "
                "4096x4096x4096, attention 1x32x4096x128."},
    CommandInfo{Command::Capture, "capture", "-- COMMAND",
                "Make a model file of a training script, to plan it like a shipped model."},
    CommandInfo{Command::Rehearse, "rehearse", "PLAN|-- COMMAND",
                "Run a training script, or a plan, with the real PyTorch on a machine without a GPU."},
    CommandInfo{Command::Run, "run", "PLAN",
                "Put a plan into a training script, run it on this machine, and compare with the prediction: run PLAN "
                "-- COMMAND."},
    CommandInfo{Command::Measure, "measure", "-- COMMAND",
                "Run a training script as it is, and measure its memory, collectives and step time."},
    CommandInfo{Command::Execute, "execute", "PLAN", "Train a plan on this machine and compare with its prediction."},
    CommandInfo{Command::Calibrate, "calibrate", "MODEL",
                "Measure this machine at the shapes of a model, and write it as a cluster file."},
    CommandInfo{Command::Replay, "replay", "FILE",
                "Replay the allocations of a recorded run under other allocator settings."},
    CommandInfo{Command::Compare, "compare", "PREDICTED MEASURED", "Compare two reports, largest difference first."},
    CommandInfo{Command::Export, "export", "PLAN",
                "Write a plan as Python, for a trainer, or its step for Perfetto, PyTorch's viewer or a spreadsheet."},
    CommandInfo{Command::Schema, "schema", "[NAME]",
                "Print the JSON Schema of model, cluster, measurements, plan or report."},
    CommandInfo{Command::Models, "models", "[MODEL]", "List the shipped models; with --expanded, write one out."},
    CommandInfo{Command::Gpus, "gpus", "", "List the known GPUs and clusters."},
    CommandInfo{Command::Doctor, "doctor", "", "Show what is installed and what is missing."},
    CommandInfo{Command::Completions, "completions", "SHELL", "Print completions for bash, zsh or fish."},
};

// Commands with the same options.
constexpr CommandSet kPlans = Command::Plan | Command::Simulate | Command::Explain;
constexpr CommandSet kSearches = Command::Plan | Command::Fit;
constexpr CommandSet kPredicts = kPlans | Command::Fit;
constexpr CommandSet kDescribes = kSearches | Command::Models;
constexpr CommandSet kShapes = kDescribes | Command::Calibrate;
constexpr CommandSet kTrains = kPredicts | Command::Calibrate;
constexpr CommandSet kRuns = Command::Rehearse | Command::Execute;
constexpr CommandSet kMeasures = Command::Run | Command::Measure;
constexpr CommandSet kScripts = Command::Rehearse | Command::Capture;
constexpr CommandSet kOnMachines = kPredicts | kScripts | Command::Export;
constexpr CommandSet kNamesLinks = kOnMachines | Command::Clock;
constexpr CommandSet kAnswers = kOnMachines | kMeasures | Command::Execute | Command::Replay | Command::Compare;
constexpr CommandSet kPrintsJson = kPredicts | kRuns | kMeasures | Command::Replay | Command::Compare | Command::Clock |
                                   Command::Models | Command::Gpus | Command::Check | Command::Doctor;
constexpr CommandSet kPrints = kPrintsJson | Command::Capture;
constexpr CommandSet kWrites = Command::Plan | Command::Explain | kRuns | kMeasures | Command::Capture |
                               Command::Compare | Command::Export | Command::Calibrate;

constexpr std::string_view kWork = "Model and training";
constexpr std::string_view kMachines = "GPUs";
constexpr std::string_view kPlan = "Trainer and plan (options left out are searched)";
constexpr std::string_view kLinks = "Links, network, host memory and drives (usual ones of the GPUs by default)";
constexpr std::string_view kWhatIf = "What if (overrides the plan)";
constexpr std::string_view kRehearsal = "Rehearsal";
constexpr std::string_view kCapture = "Capture";
constexpr std::string_view kExecution = "Execution";
constexpr std::string_view kTraining = "Training";
constexpr std::string_view kReplay = "Replay";
constexpr std::string_view kClock = "Clock";
constexpr std::string_view kOutput = "Output";
constexpr std::array kGroups = {kWork,    kMachines,  kPlan,     kWhatIf, kLinks, kRehearsal,
                                kCapture, kExecution, kTraining, kReplay, kClock, kOutput};

/// An option for a choice of a plan: the same names, texts and help.
constexpr OptionInfo of_choice(planner::PlanChoice choice, std::string_view group, CommandSet commands) {
  const planner::ChoiceRow& row = row_of(choice);
  return {choice, row.names, row.word, row.values, group, row.help, commands, row.rules.repeatable, row.rules.many};
}

constexpr std::array kOptions = {
    of_choice(planner::PlanChoice::Gpus, kMachines, kNamesLinks | Command::Execute | Command::Calibrate),
    of_choice(planner::PlanChoice::Nodes, kMachines, kNamesLinks),
    of_choice(planner::PlanChoice::GpuName, kMachines, kNamesLinks | Command::Calibrate),
    of_choice(planner::PlanChoice::Memory, kMachines, kOnMachines | Command::Execute),
    of_choice(planner::PlanChoice::ReserveMemory, kMachines, kOnMachines),
    of_choice(planner::PlanChoice::ClusterFile, kMachines, kNamesLinks | Command::Execute | Command::Calibrate),

    of_choice(planner::PlanChoice::IntraLinkName, kLinks, kNamesLinks),
    of_choice(planner::PlanChoice::IntraBandwidth, kLinks, kNamesLinks),
    of_choice(planner::PlanChoice::BusBandwidth, kLinks, kNamesLinks),
    of_choice(planner::PlanChoice::NetworkName, kLinks, kNamesLinks),
    of_choice(planner::PlanChoice::NicBandwidth, kLinks, kNamesLinks),
    of_choice(planner::PlanChoice::GpusPerNic, kLinks, kNamesLinks),
    of_choice(planner::PlanChoice::Sharp, kLinks, kNamesLinks),
    of_choice(planner::PlanChoice::NcclVersion, kLinks, kNamesLinks),
    of_choice(planner::PlanChoice::NcclAlgorithms, kLinks, kNamesLinks),
    of_choice(planner::PlanChoice::NcclProtocols, kLinks, kNamesLinks),
    of_choice(planner::PlanChoice::NodeSpread, kLinks, kOnMachines),
    of_choice(planner::PlanChoice::HostMemory, kLinks, kOnMachines),
    of_choice(planner::PlanChoice::NvmeBandwidth, kLinks, kOnMachines),
    of_choice(planner::PlanChoice::NvmeCapacity, kLinks, kOnMachines),

    of_choice(planner::PlanChoice::Recipe, kWork, kShapes),
    of_choice(planner::PlanChoice::Batch, kWork, kShapes),
    of_choice(planner::PlanChoice::Sequence, kWork, kShapes),
    of_choice(planner::PlanChoice::Packing, kWork, kShapes),
    of_choice(planner::PlanChoice::DocumentLength, kWork, kShapes),
    of_choice(planner::PlanChoice::PackedAttentionName, kWork, kShapes),
    of_choice(planner::PlanChoice::AttentionName, kWork, kPredicts | Command::Models),
    of_choice(planner::PlanChoice::GlobalBatch, kWork, Command::Plan),
    of_choice(planner::PlanChoice::Accumulate, kWork, kPredicts),
    of_choice(planner::PlanChoice::SetDimension, kWork, kShapes),
    of_choice(planner::PlanChoice::Trainable, kWork, kShapes),
    of_choice(planner::PlanChoice::Freeze, kWork, kShapes),
    of_choice(planner::PlanChoice::Lora, kWork, kShapes),
    of_choice(planner::PlanChoice::Quantize, kWork, kShapes),
    of_choice(planner::PlanChoice::Liger, kWork, kShapes),
    of_choice(planner::PlanChoice::Float8, kWork, kShapes),
    of_choice(planner::PlanChoice::Also, kWork, kSearches),
    of_choice(planner::PlanChoice::Precision, kWork, kTrains),
    of_choice(planner::PlanChoice::ReduceDtype, kWork, kTrains),
    of_choice(planner::PlanChoice::OptimizerName, kWork, kTrains),
    of_choice(planner::PlanChoice::OptimizerImpl, kWork, kTrains),
    of_choice(planner::PlanChoice::OptimizerStatesName, kWork, kTrains),
    of_choice(planner::PlanChoice::Muon, kWork, kTrains),
    of_choice(planner::PlanChoice::Clip, kWork, kTrains),
    of_choice(planner::PlanChoice::Initialization, kWork, kPredicts),
    of_choice(planner::PlanChoice::Flavor, kWork, kTrains | Command::Models),
    of_choice(planner::PlanChoice::LossName, kWork, kPredicts | Command::Models),
    of_choice(planner::PlanChoice::PaddingMask, kWork, kPredicts | Command::Models),
    of_choice(planner::PlanChoice::AllocConf, kWork, kPredicts | Command::Replay),
    of_choice(planner::PlanChoice::Torch, kWork, kPredicts),

    of_choice(planner::PlanChoice::Runtime, kPlan, kSearches),
    of_choice(planner::PlanChoice::DeepSpeedFile, kPlan, Command::Plan),
    of_choice(planner::PlanChoice::Strategy, kPlan, kSearches),
    of_choice(planner::PlanChoice::Shard, kPlan, kSearches),
    of_choice(planner::PlanChoice::Replicate, kPlan, kSearches),
    of_choice(planner::PlanChoice::ExpertParallel, kPlan, kSearches),
    of_choice(planner::PlanChoice::Reshard, kPlan, kSearches),
    of_choice(planner::PlanChoice::Wrap, kPlan, kSearches),
    of_choice(planner::PlanChoice::WrapEnds, kPlan, kSearches),
    of_choice(planner::PlanChoice::Checkpoint, kPlan, kPredicts),
    of_choice(planner::PlanChoice::CheckpointOffload, kPlan, kPredicts),
    of_choice(planner::PlanChoice::Offload, kPlan, kPredicts),
    of_choice(planner::PlanChoice::GradientSync, kPlan, kPredicts),
    of_choice(planner::PlanChoice::Prefetch, kPlan, kPredicts),
    of_choice(planner::PlanChoice::BackwardPrefetch, kPlan, kPredicts),
    of_choice(planner::PlanChoice::ReduceScatterBuffers, kPlan, kPredicts),
    of_choice(planner::PlanChoice::SeparateReduceScatter, kPlan, kPredicts),
    of_choice(planner::PlanChoice::Ddp, kPlan, kSearches),
    of_choice(planner::PlanChoice::CudaGraphs, kPlan, kPredicts),

    OptionInfo{Option::WorldSize, "--world-size,--num-processes", "N", "", kMachines,
               "GPUs in all, as launchers count them: up to 8 in one node, more in nodes of 8, of --gpus, or of the "
               "cluster's size",
               kSearches | Command::Clock},
    OptionInfo{Option::AtMost, "--at-most", "N", "", kMachines,
               "GPUs in all. With it, or with lists (--gpus 4,8 --gpu L4,A10G), the best of several machines is found",
               Command::Plan},
    OptionInfo{
        Option::Objective, "--objective", "WHAT", "time|memory|cost|tokens", kMachines,
        "The fastest step, the least memory, or most samples a second with a free batch; of several machines: most "
        "samples a second (time), or the cheapest sample",
        Command::Plan},
    OptionInfo{Option::Price, "--price", "PRICES", "", kMachines,
               "Price of one GPU per hour: 1.5, or by name, L4=0.8,A10G=1.2", Command::Plan},
    OptionInfo{Option::Effort, "--effort", "N", "", kPlan,
               "How far a search may go: about so many seconds of a CPU, counted in work, so that one request has one "
               "answer (default: 6; 0: to its end). fit: for each machine",
               kSearches},
    OptionInfo{Option::Lengths, "--lengths", "FILE", "", kWork,
               "Tokens of each sample, one number a line or a JSON array: run the plan with batches padded to their "
               "longest row, through one allocator. --seq cuts longer ones",
               Command::Plan | Command::Simulate},

    OptionInfo{Option::Steps, "--steps", "N", "", kRehearsal,
               "Stop the script after this many optimizer steps (default: 3; 0: run to its end)",
               kRuns | kMeasures | Command::Plan | Command::Simulate},
    OptionInfo{Option::Timeout, "--timeout", "TIME", "", kRehearsal,
               "Time limit of one rank, such as 90s (default: 10min)", kRuns | Command::Capture | kSearches},
    OptionInfo{Option::RecordStream, "--record-stream", "WHEN", "auto|done|hold", kRehearsal,
               "When memory that another stream used becomes free: done (at once), hold (as late as possible), auto "
               "(both, if it matters)",
               Command::Rehearse},
    OptionInfo{Option::Routing, "--routing", "HOW", "none|balanced", kRehearsal,
               "Expert routing: balanced, or none (all tokens to expert 0)", kScripts | kSearches},
    OptionInfo{Option::AllowWrites, "--allow-writes", "", "", kRehearsal,
               "Let the script write to your disk (default: its writes go to a temporary folder)",
               kScripts | kSearches},
    OptionInfo{Option::NcclBytes, "--nccl-bytes", "SIZE", "", kRehearsal,
               "Device memory of each NCCL communicator (default: estimated by its size and the machines)",
               Command::Rehearse},
    OptionInfo{Option::ContextBytes, "--context-bytes", "SIZE", "", kRehearsal,
               "Device memory of the CUDA context (default: that of the GPU)", Command::Rehearse},
    OptionInfo{Option::CudnnWorkspace, "--cudnn-workspace", "SIZE", "", kRehearsal,
               "Workspace of every cuDNN plan (default: cuDNN's own)", Command::Rehearse},
    OptionInfo{Option::Apply, "--apply", "FILE", "", kRehearsal,
               "Put this plan into the script: its units by the real fully_shard, and compare with its prediction",
               Command::Rehearse},
    OptionInfo{
        Option::FindBatch, "--find-batch", "WORDS", "", kRehearsal,
        "Find the largest batch that fits. Give the script's own option, with {} for the number: '--batch-size {}'",
        Command::Rehearse},
    OptionInfo{Option::Python, "--python", "PATH", "", kRehearsal, "Python with torch, to rehearse a plan", kRuns},
    OptionInfo{Option::Snapshot, "--snapshot", "FILE", "", kRehearsal, "Write a memory snapshot for PyTorch's viewer",
               Command::Rehearse},
    OptionInfo{Option::AllocatorTrace, "--allocator-trace", "FILE", "", kRehearsal,
               "Write every event of the allocator", Command::Rehearse},
    OptionInfo{Option::Html, "--html", "FILE", "", kRehearsal, "Write the answer as one HTML page", Command::Rehearse},
    OptionInfo{Option::Progress, "--progress", "FILE", "", kRehearsal,
               "Write the script's progress to FILE, a line for each change", Command::Rehearse | Command::Capture},
    OptionInfo{Option::CompareWith, "--compare-with", "FILE", "", kRehearsal,
               "Compare with a plan, or with a report printed by --json", Command::Rehearse | Command::Clock},
    OptionInfo{Option::Tolerance, "--tolerance", "SHARE", "", kRehearsal,
               "Exit 1 if any compared value is off by more than this, such as 2%",
               kRuns | Command::Run | Command::Compare},

    OptionInfo{Option::BatchOption, "--batch-option", "WORDS", "", kCapture,
               "The script's batch option, with {} for the number: '--batch-size {}'", Command::Capture | kSearches},
    OptionInfo{Option::Batches, "--batches", "LIST", "", kCapture,
               "Batches to capture, such as 1,2,4,8 (default: that of the command); a plan chooses among them",
               Command::Capture | kSearches},
    OptionInfo{Option::NoCheck, "--no-check", "", "", kCapture,
               "Skip checking the capture against a rehearsal of the script on two GPUs", Command::Capture | kSearches},
    OptionInfo{Option::Proof, "--proof", "", "", kExecution,
               "Prove it on all GPUs of the node: compare with the prediction, PyTorch's FSDP2 and the stub GPU",
               Command::Execute},
    OptionInfo{Option::Ranks, "--ranks", "N", "", kExecution,
               "Processes to start (default: one for each rank of the plan)", Command::Execute},
    OptionInfo{Option::Device, "--device", "KIND", "cpu|cuda", kExecution,
               "cpu (over Gloo) or cuda (over NCCL); default: GPUs if the plan is for GPUs and this machine has them",
               Command::Execute | Command::Calibrate},
    OptionInfo{Option::RunFolder, "--run-dir", "FOLDER", "", kExecution,
               "Keep the plan, its prediction, and each rank's log, report and trace in this folder", Command::Execute},
    OptionInfo{Option::ChromeTrace, "--chrome-trace", "FILE", "", kExecution,
               "Write the measured trace of the last step, for Perfetto", Command::Execute},
    OptionInfo{Option::Calibration, "--calibration", "FILE", "", kExecution,
               "Predict with this calibration if it exists, and update it with this run's figures", Command::Execute},
    OptionInfo{Option::Budget, "--seconds", "N", "", kExecution,
               "Begin no measurement after so many seconds (default: 60); the same command goes on later",
               Command::Calibrate},
    OptionInfo{Option::Rounds, "--rounds", "N", "", kExecution,
               "Measure everything so often while there is time, and keep the shortest times (default: 3)",
               Command::Calibrate},
    OptionInfo{Option::Seed, "--seed", "N", "", kExecution, "Seed of weights and data (default: 0)",
               Command::Execute | Command::Plan | Command::Simulate},
    OptionInfo{Option::Reduction, "--reduction", "HOW", "direct|parity", kExecution,
               "How gradients are summed: direct, or parity (Gloo's own, in PyTorch's order)", Command::Execute},
    OptionInfo{Option::Weights, "--weights", "FILE...", "", kExecution,
               "Parameters from safetensors files, a folder of them or an index; else from the seed", Command::Execute,
               true, true},
    OptionInfo{Option::Tokens, "--tokens", "FILE...", "", kExecution,
               "Token ids, raw or .npy, or a .safetensors file of samples; else data from the seed", Command::Execute,
               true, true},
    OptionInfo{Option::TokenDtype, "--token-dtype", "DTYPE", "uint16|int32|uint32|int64", kExecution,
               "Dtype of raw token ids (default: by the vocabulary)", Command::Execute},
    OptionInfo{Option::Labels, "--labels", "FILE...", "", kExecution,
               "A file of labels for each of --tokens; -100 is ignored", Command::Execute, true, true},
    OptionInfo{Option::Shuffle, "--shuffle", "SEED", "", kExecution,
               "Shuffle the samples of --tokens in each epoch, from this seed (default: file order)", Command::Execute},
    OptionInfo{Option::DocumentEnd, "--document-end", "ID", "", kExecution,
               "End-of-document token: the next one is not predicted", Command::Execute},
    OptionInfo{Option::EvaluateFiles, "--evaluate", "FILE...", "", kExecution,
               "Held-out token ids: print their loss, without dropout", Command::Execute, true, true},
    OptionInfo{Option::EvaluateEvery, "--evaluate-every", "N", "", kExecution,
               "Evaluate every N steps (default: only after the last step)", Command::Execute},
    OptionInfo{Option::EvaluateSamples, "--evaluate-samples", "N", "", kExecution,
               "Evaluate at most N samples (default: all)", Command::Execute},
    OptionInfo{Option::CheckpointFolder, "--checkpoint-dir", "FOLDER", "", kExecution, "Write checkpoints here",
               Command::Execute},
    OptionInfo{Option::CheckpointEvery, "--checkpoint-every", "N", "", kExecution,
               "Write a checkpoint every N steps (default: only after the last step)", Command::Execute},
    OptionInfo{Option::CheckpointKeep, "--checkpoint-keep", "N", "", kExecution,
               "Keep only the newest N checkpoints (default: all)", Command::Execute},
    OptionInfo{Option::Resume, "--resume", "FOLDER", "latest", kExecution,
               "Resume from a checkpoint, or from the latest of --checkpoint-dir", Command::Execute},
    OptionInfo{Option::SaveParameters, "--save-parameters", "FILE", "", kExecution,
               "Write all parameters at the end, as safetensors", Command::Execute},
    OptionInfo{Option::Metrics, "--metrics", "FILE", "", kExecution, "Write a line of JSON for each step as it ends",
               Command::Execute},
    OptionInfo{Option::MeasureEvery, "--measure-every", "N", "", kExecution,
               "Measure and print every Nth step (default: 1)", Command::Execute},

    OptionInfo{Option::LearningRate, "--lr", "RATE", "", kTraining, "Learning rate (default: 1e-4)", Command::Execute},
    OptionInfo{Option::Schedule, "--schedule", "NAME", "constant|linear|cosine", kTraining,
               "Learning rate after the warm-up (default: constant)", Command::Execute},
    OptionInfo{Option::Warmup, "--warmup", "N", "", kTraining, "Warm-up steps, in which the learning rate rises from 0",
               Command::Execute},
    OptionInfo{Option::ScheduleSteps, "--schedule-steps", "N", "", kTraining,
               "Length of the schedule, warm-up included (default: --steps)", Command::Execute},
    OptionInfo{Option::MinRateRatio, "--min-lr-ratio", "SHARE", "", kTraining,
               "Final share of the learning rate, for cosine, such as 0.1", Command::Execute},
    OptionInfo{Option::Betas, "--betas", "B1 B2", "", kTraining, "Betas of Adam and AdamW (default: 0.9 0.999)",
               Command::Execute, true, true},
    OptionInfo{Option::Epsilon, "--eps", "X", "", kTraining, "Epsilon of Adam and AdamW (default: 1e-8)",
               Command::Execute},
    OptionInfo{Option::WeightDecay, "--weight-decay", "X", "", kTraining, "Weight decay, instead of the plan's",
               Command::Execute},
    OptionInfo{Option::NoDecay, "--no-decay", "WHAT", "norms|biases|norms,biases", kTraining,
               "Parameters without weight decay", Command::Execute},
    OptionInfo{Option::Accumulation, "--accumulation", "HOW", "mean|sum", kTraining,
               "How gradients of micro-batches are combined (default: mean)", Command::Execute},
    OptionInfo{Option::NonfiniteLoss, "--nonfinite-loss", "WHAT", "stop|continue", kTraining,
               "Action if a loss is NaN or infinite (default: stop)", Command::Execute},

    OptionInfo{Option::DeviceMemory, "--device-memory", "SIZE", "", kReplay,
               "Device memory, such as 16G (default: that of the recording, if known)", Command::Replay},

    OptionInfo{Option::ClockDtype, "--dtype", "DTYPE", "bf16|fp16|fp32|tf32", kClock,
               "Dtype of the matmul or attention (default: bf16)", Command::Clock},
    OptionInfo{Option::Causal, "--causal", "", "", kClock, "Attention has a causal mask", Command::Clock},

    OptionInfo{Option::Output, "-o,--output", "FILE", "", kOutput,
               "Write the plan to a file; for a rehearsal or a comparison, the --json output", kWrites},
    OptionInfo{Option::Force, "--force", "", "", kOutput, "Overwrite files", kWrites},
    OptionInfo{Option::Json, "--json", "", "", kOutput, "Same as --format json", kPrintsJson},
    OptionInfo{Option::Expanded, "--expanded", "", "", kOutput, "Write every module, tensor and op of a model, as JSON",
               Command::Models},
    OptionInfo{Option::OutputFormat, "--format", "NAME", "table|text|json|csv|md|trace|sarif|github", kOutput,
               "How to print the result (trace: replay only)", kPrints},
    OptionInfo{Option::Rank, "--rank", "N", "", kOutput,
               "Report the memory of this rank (default: the rank that needs most). rehearse also accepts a list "
               "(0,5), all, or worst",
               kOnMachines},
    OptionInfo{Option::ExportTo, "--to", "FORMAT",
               "fsdp2|fsdp1|ddp|accelerate|trainer|torchtitan|deepspeed|chrome|memviz|csv", kOutput,
               "fsdp2, fsdp1, ddp (the plan as Python, to paste into a script), accelerate (YAML for accelerate "
               "launch), trainer "
               "(TrainingArguments of transformers, as Python), torchtitan (a configuration in Python; TOML for "
               "0.2.2), deepspeed (ds_config.json of "
               "ZeRO), chrome (trace of streams and memory), memviz (snapshot for pytorch.org/memory_viz), csv",
               Command::Export},
    OptionInfo{
        Option::Nearest, "--nearest", "FILE", "", kOutput,
        "If the trainer cannot express the plan, export the closest one that it can and that fits, and save that "
        "plan here",
        Command::Export},
    OptionInfo{
        Option::TrainerVersion, "--trainer-version", "VERSION", "", kOutput,
        "The release of the trainer that reads the file, such as 1.12.0 of accelerate (default: the newest known)",
        Command::Export | Command::Plan},
    OptionInfo{Option::For, "--for", "TRAINER", "accelerate|trainer|torchtitan|deepspeed|fsdp2", kPlan,
               "Search only plans that this trainer's configuration can express, and name the gain of the rest",
               Command::Plan},
    OptionInfo{Option::Color, "--color", "WHEN", "auto|always|never", kOutput, "Colors", CommandSet::all()},
    OptionInfo{Option::Explain, "--explain", "", "", kOutput,
               "With --wrap size:N or class:NAME: explain for each visited module why it is or is not a unit",
               Command::Plan},
    OptionInfo{Option::Phases, "--phases", "", "", kOutput,
               "Print the peaks of a job's phases, on a GPU and on the host: loading, steps, evaluation, saving, "
               "resuming; exit with 1 if one does not fit",
               kPlans},
    OptionInfo{
        Option::Fix, "--fix", "", "", kOutput,
        "Write the files with their errors mended, and without keys that have no effect; comments and order stay",
        Command::Check},
    OptionInfo{Option::Diff, "--diff", "", "", kOutput,
               "For a trainer's own file or line: print what to change in it, as a unified diff", Command::Plan},
    OptionInfo{Option::Write, "--write", "FILE", "", kOutput, "The same: write the changed configuration to FILE",
               Command::Plan},
    OptionInfo{Option::EvaluationBatch, "--eval-batch", "N", "", kOutput,
               "With --phases: samples per GPU in an evaluation (default: those of training)", kPlans},
    OptionInfo{Option::Time, "--time", "", "", kOutput,
               "The time of a step: the waits that cost most, and changes that shorten each", Command::Explain},
    OptionInfo{Option::Verbose, "--verbose", "", "", kOutput, "Print more: all terms, sources and plans of the front",
               kAnswers | Command::Check},
    OptionInfo{Option::Quiet, "--quiet", "", "", kOutput, "Print the verdict only",
               kAnswers | Command::Clock | Command::Calibrate | Command::Check},
    OptionInfo{Option::Strict, "--strict", "", "", kOutput,
               "Exit with 1 as well when the plan runs without room to spare (FITS, TIGHT)",
               Command::Plan | Command::Simulate | Command::Explain},
    OptionInfo{Option::Help, "-h,--help", "", "", kOutput, "Show the options that most people need", CommandSet::all()},
    OptionInfo{Option::HelpAll, "--help-all", "", "", kOutput, "Show every option", CommandSet::all()},
    OptionInfo{Option::Version, "--version", "", "", kOutput, "Show the version", CommandSet::all()},
};

/// Other help for an option in some commands, where its meaning is different or narrower. The first row of an option
/// with the command applies.
struct CommandWords {
  Option option = Option::Help;
  CommandSet commands;
  OptionWords words;
};
constexpr std::array kCommandWords = {
    CommandWords{Option::Gpus,
                 Command::Execute,
                 {kExecution, "With --proof: number of GPUs, which must be that of the plan's ranks"}},
    CommandWords{Option::Python,
                 Command::Execute,
                 {kExecution, "Python with torch, for other frameworks than FSDP2 and for --proof"}},
    CommandWords{Option::Memory, Command::Execute, {kExecution, "Limit on the tensors of each rank, such as 2G"}},
    CommandWords{Option::Steps, Command::Execute, {kExecution, "Optimizer steps (default: 4)"}},
    CommandWords{Option::Steps,
                 kMeasures,
                 {kExecution, "End the script after this many optimizer steps (default: when it ends by itself)"}},
    CommandWords{Option::Timeout,
                 Command::Execute,
                 {kExecution, "How long a rank waits for the others, such as 90s (default: 5min)"}},
    CommandWords{Option::Gpus,
                 Command::Calibrate,
                 {kExecution,
                  "Processes to measure with, one for each GPU: 1, 2, 4, ... up to N (default: the GPUs of "
                  "this machine, or 2)"}},
    CommandWords{Option::GpuName, Command::Calibrate, {kExecution, "The GPU that is here, to measure it over NCCL"}},
    CommandWords{
        Option::ClusterFile, Command::Calibrate, {kExecution, "The cluster of this machine, to measure it over NCCL"}},
    CommandWords{Option::Device,
                 Command::Calibrate,
                 {kExecution, "cpu (over Gloo) or cuda (over NCCL); default: cuda if a GPU is named"}},
    CommandWords{Option::Output, Command::Calibrate, {kOutput, "Write the cluster to this file"}},
    CommandWords{Option::ClusterFile,
                 Command::Execute,
                 {kExecution, "Predict with the measured times of this cluster, as fsdp-plan calibrate writes it"}},
    CommandWords{Option::CompareWith, Command::Clock, {kClock, "Compare with the output of nccl-tests, size by size"}},
    CommandWords{Option::Tolerance,
                 Command::Compare,
                 {kOutput, "Exit 1 if any compared value is off by more than this, such as 2%"}},
    CommandWords{Option::Tolerance,
                 Command::Execute | Command::Run,
                 {kExecution, "Exit 1 if any compared value is off by more than this, such as 2%"}},
    CommandWords{
        Option::Steps, Command::Plan | Command::Simulate, {kWork, "Steps of a run with --lengths (default: 2000)"}},
    CommandWords{Option::Seed,
                 Command::Plan | Command::Simulate,
                 {kWork, "Seed of the order of the samples of --lengths (default: 0)"}},
    CommandWords{Option::Output, Command::Plan | Command::Explain, {kOutput, "Write the plan to a file"}},
    CommandWords{Option::Output, Command::Capture, {kOutput, "Write the model to this file"}},
    CommandWords{Option::Output, Command::Export, {kOutput, "Write to this file"}},
    CommandWords{Option::Output, kRuns | kMeasures | Command::Compare, {kOutput, "Write the --json output to a file"}},
    CommandWords{Option::OutputFormat,
                 Command::Replay,
                 {kOutput, "How to print the result: table (or text), json, csv, md, or trace (every request)"}},
    CommandWords{Option::OutputFormat,
                 Command::Check,
                 {kOutput,
                  "How to print the result: table (or text), json, csv, md, sarif (for code scanning) or "
                  "github (annotations of a workflow)"}},
    CommandWords{Option::Verbose, Command::Check, {kOutput, "Print the source of each rule, too"}},
    CommandWords{Option::OutputFormat, kPrints, {kOutput, "How to print the result: table (or text), json, csv or md"}},
    CommandWords{Option::Rank,
                 kPlans | Command::Export,
                 {kOutput, "Report the memory of this rank (default: the rank that needs most)"}},
    CommandWords{
        Option::Rank, Command::Rehearse, {kRehearsal, "Ranks to play: 5, a list (0,5), all, or worst (default: 0)"}},
    CommandWords{Option::Verbose,
                 kPlans,
                 {kOutput,
                  "Print everything: proof, traffic, times, faster plans that do not fit, all suggestions and "
                  "assumptions"}},
    CommandWords{Option::Verbose, kScripts, {kOutput, "Print more, and pass on the script's output"}},
    CommandWords{Option::Verbose,
                 Command::Execute | kMeasures | Command::Replay | Command::Compare | Command::Export,
                 {kOutput, "Say more"}},
};

/// The previous version's names of options that make no choice of a plan. Choices have their own old names.
struct OldName {
  std::string_view name;
  std::string_view now;
  CommandSet commands;
};
constexpr std::array kOldNames = {
    OldName{"--trace", "--allocator-trace", Command::Rehearse},
    OldName{"--trace", "--chrome-trace", Command::Execute},
    OldName{"--against", "--compare-with", Command::Rehearse},
    OldName{"--beside", "--compare-with", Command::Clock},
    OldName{"--every", "--checkpoint-every", Command::Execute},
    OldName{"--keep", "--checkpoint-keep", Command::Execute},
    OldName{"--reduce", "--reduction", Command::Execute},
};

constexpr std::string_view first_long_name(std::string_view names) {
  const std::size_t begin = names.find("--");
  return names.substr(begin, names.find(',', begin) - begin);
}

constexpr bool follows_the_enums() {
  for (std::size_t i = 0; i < kOptions.size(); ++i) {
    if (static_cast<std::size_t>(kOptions[i].option) != i || kOptions[i].commands == CommandSet()) return false;
    if (std::find(kGroups.begin(), kGroups.end(), kOptions[i].group) == kGroups.end()) return false;
  }
  for (std::size_t i = 0; i < kCommands.size(); ++i) {
    if (static_cast<std::size_t>(kCommands[i].command) != i) return false;
  }
  return kOptions.size() == static_cast<std::size_t>(Option::Version) + 1 &&
         kCommands.size() == static_cast<std::size_t>(Command::Completions) + 1;
}
static_assert(
    follows_the_enums(),
    "info_of takes the enumerator as the index; each option is of a command; an option of a choice has its name");

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

std::span<const std::string_view> option_groups() {
  return kGroups;
}

const OptionInfo& info_of(Option option) {
  return kOptions[static_cast<std::size_t>(option)];
}

std::span<const OptionInfo> handed_on() {
  const auto first = kOptions.begin() + static_cast<std::ptrdiff_t>(Option::Seed);
  const auto last = kOptions.begin() + static_cast<std::ptrdiff_t>(Option::NonfiniteLoss);
  return {first, last + 1};
}

OptionWords option_words(const OptionInfo& info, Command command) {
  for (const CommandWords& each : kCommandWords) {
    if (each.option == info.option && each.commands.has(command)) return each.words;
  }
  const bool is_of_plan_file = command == Command::Simulate || command == Command::Explain;
  const bool is_changed = is_of_plan_file && (info.group == kWork || info.group == kPlan);
  return {is_changed ? kWhatIf : info.group, info.help};
}

std::string_view flag_of(Option option) {
  return first_long_name(info_of(option).names);
}

std::string_view current_name(std::string_view name, Command command) {
  for (const OldName& old : kOldNames) {
    if (old.name == name && old.commands.has(command)) return old.now;
  }
  // Only if the command takes it: fsdp-exec has a --checkpoint of its own, the folder.
  const std::optional<planner::PlanChoice> choice = planner::choice_of_place(name);
  if (!choice || !info_of(*choice).commands.has(command)) return name;
  return place_of(*choice);
}

std::optional<std::string> CommandLine::value(Option option) const {
  const std::vector<std::string>& given = all(option);
  if (given.empty()) return std::nullopt;
  return given.back();
}

}  // namespace fsdp::command

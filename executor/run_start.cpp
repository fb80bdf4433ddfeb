#include "executor/run_start.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "executor/checkpoint/old_names.h"
#include "executor/checkpoint/weights.h"
#include "executor/training/stored_samples.h"
#include "executor/training/token_file.h"

namespace fsdp::executor {

namespace {

constexpr std::string_view kLatest = "latest";
constexpr std::string_view kStoredSamples = ".safetensors";

template <class T>
void keep(Result<T> result, T& to, Errors& errors) {
  if (result) {
    to = *std::move(result);
  } else {
    append(errors, result.error());
  }
}

void read_weights(const RunOptions& options, const Model& model, RunStart& start, Errors& errors) {
  if (options.weights.empty() || start.resumed) return;
  const std::size_t before = errors.size();
  keep(read_stored_tensors(options.weights), start.weights.emplace(), errors);
  if (errors.size() != before) return;
  start.notes = settle_old_names(*start.weights, model);
  const Errors unfit = check_weights(*start.weights, model);
  append(errors, unfit);
}

/// Token ids of a language model, or samples of any model.
Result<std::shared_ptr<const SampleSource>> open_samples(const TokenSource& source, const Model& model) {
  const auto is_stored = [](const std::string& path) { return path.ends_with(kStoredSamples); };
  if (std::any_of(source.files.begin(), source.files.end(), is_stored)) {
    if (source.files.size() != 1 || !source.labels.empty() || source.dtype || source.document_end) {
      return failure(
          source.files.front(),
          "A .safetensors file has all inputs of all samples, and stands alone: without other files, --labels, "
          "--token-dtype and --document-end.",
          "Put labels into it.");
    }
    FSDP_TRY(std::shared_ptr<const SampleSource> stored,
             StoredSamples::open(source.files.front(), model, source.shuffle_seed));
    return stored;
  }
  FSDP_TRY(const TokenShape shape, token_shape(model));
  FSDP_TRY(std::shared_ptr<const SampleSource> file, TokenFile::open(source, shape));
  return file;
}

/// An evaluation is the same each time, and has at least one batch for each rank.
void open_evaluated(const RunOptions& options, const Model& model, const Plan& plan, RunStart& start, Errors& errors) {
  const TokenSource source{.files = options.evaluated,
                           .labels = {},
                           .dtype = options.token_dtype,
                           .shuffle_seed = std::nullopt,
                           .document_end = options.training.values.document_end};
  const std::size_t before = errors.size();
  keep(open_samples(source, model), start.evaluated, errors);
  if (errors.size() != before) return;
  const std::int64_t round = plan.mesh.world_size() * start.evaluated->batch();
  const std::int64_t samples = start.evaluated->samples();
  const std::int64_t most = options.evaluate_samples == 0 ? samples : std::min(samples, options.evaluate_samples);
  if (most >= round) return;
  errors.push_back(
      {"--evaluate", fmt::format("{} samples are evaluated, and the ranks take {} at a time.", most, round), ""});
}

/// The folder to resume from. Empty to start anew.
std::string folder_of(const RunOptions& options, Errors& errors) {
  if (options.resume != kLatest) return options.resume;
  if (options.checkpoints.folder.empty()) {
    errors.push_back(
        {"--resume", "\"latest\" is looked up in the checkpoint folder, and none is given.", "Add --checkpoint-dir."});
    return "";
  }
  const std::vector<std::int64_t> steps = checkpoint_steps(options.checkpoints.folder);
  return steps.empty() ? "" : fmt::format("{}/{}", options.checkpoints.folder, checkpoint_name(steps.back()));
}

/// The options may leave out a value that the checkpoint has, and must not contradict it.
void settle_options(RunOptions& options, const CheckpointIndex& index, const std::string& folder, Errors& errors) {
  const auto seed = static_cast<std::uint64_t>(index.seed);
  if (options.has_seed && options.seed != seed) {
    errors.push_back({"--seed",
                      fmt::format("{} was trained with the seed {}, and its data follow from it.", folder, seed),
                      "Leave it out."});
  }
  if (index.samples > 0 && options.tokens.empty()) {
    errors.push_back({"--tokens", fmt::format("{} was trained on a token file.", folder), "Name the file."});
  }
  options.seed = seed;
  for (const char* flag : {"--shuffle", "--document-end"}) {
    if (index.samples == 0 || !options.training.given.contains(flag)) continue;
    Hyperparameters settled = index.hyperparameters;
    TrainingOptions again{.values = options.training.values, .given = {flag}};
    go_on_with(settled, again);
    if (again.values == settled) continue;
    errors.push_back({flag, fmt::format("{} was trained with a different value of it.", folder), "Leave it out."});
  }
  go_on_with(index.hyperparameters, options.training);
}

void read_resumed(RunOptions& options, const Model& model, const Plan& plan, RunStart& start, Errors& errors) {
  const std::string folder = folder_of(options, errors);
  if (folder.empty()) return;
  if (options.resume != kLatest && !options.weights.empty()) {
    errors.push_back({"--weights", "A resumed run has the weights of its checkpoint.", "Leave one of them out."});
  }
  const std::size_t before = errors.size();
  keep(read_checkpoint(folder, model, plan), start.resumed.emplace(), errors);
  if (errors.size() == before) settle_options(options, start.resumed->index, folder, errors);
}

/// A folder must not mix checkpoints of two runs.
void check_folder(const RunOptions& options, const RunStart& start, Errors& errors) {
  if (options.checkpoints.folder.empty()) return;
  if (options.stands_in)
    errors.push_back({"--checkpoint-dir", "A rank that runs alone does not have the full model to write.", ""});
  std::error_code error;
  std::filesystem::create_directories(options.checkpoints.folder, error);
  if (error) {
    errors.push_back({options.checkpoints.folder, fmt::format("The folder cannot be made: {}.", error.message()), ""});
  }
  const std::vector<std::int64_t> steps = checkpoint_steps(options.checkpoints.folder);
  const std::int64_t begin = start.resumed ? start.resumed->index.step : 0;
  if (steps.empty() || steps.back() <= begin) return;
  errors.push_back(
      {options.checkpoints.folder,
       fmt::format("It has a checkpoint of step {}, and this run begins after step {}.", steps.back(), begin),
       "Add --resume latest, or choose another folder."});
}

/// Finds unwritable result files before hours of training, not after them.
void check_results(const RunOptions& options, Errors& errors) {
  const std::pair<const char*, const std::string*> files[] = {{"--report", &options.report},
                                                              {"--save-parameters", &options.parameters},
                                                              {"--save-logits", &options.logits},
                                                              {"--chrome-trace", &options.trace},
                                                              {"--allocation-trace", &options.allocations},
                                                              {"--workspaces", &options.workspaces}};
  for (const auto& [flag, path] : files) {
    if (path->empty()) continue;
    std::error_code error;
    const std::filesystem::path parent = std::filesystem::path(*path).parent_path();
    const std::string folder = parent.empty() ? "." : parent.string();
    if (!std::filesystem::is_directory(folder, error)) {
      errors.push_back({flag, fmt::format("{} is not a folder.", folder), "Make it first, or name another."});
    } else if (access(folder.c_str(), W_OK) != 0) {
      errors.push_back({flag, fmt::format("{} cannot be written: {}.", folder, std::strerror(errno)), "Name another."});
    } else if (std::filesystem::is_directory(*path, error)) {
      errors.push_back({flag, fmt::format("{} is a folder.", *path), "Name a file in it."});
    }
  }
}

}  // namespace

Result<RunStart> read_run_start(RunOptions& options, const Model& model, const Plan& plan) {
  Errors errors;
  RunStart start;
  if (options.stands_in && !options.resume.empty()) {
    errors.push_back({"--resume", "A rank that runs alone cannot resume.", ""});
  }
  read_resumed(options, model, plan, start, errors);
  read_weights(options, model, start, errors);
  if (!options.tokens.empty()) {
    keep(open_samples({.files = options.tokens,
                       .labels = options.labels,
                       .dtype = options.token_dtype,
                       .shuffle_seed = options.training.values.shuffle_seed,
                       .document_end = options.training.values.document_end},
                      model),
         start.tokens, errors);
  }
  if (!options.evaluated.empty()) open_evaluated(options, model, plan, start, errors);
  for (const char* flag : {"--shuffle", "--document-end"}) {
    if (!options.training.given.contains(flag) || !options.tokens.empty()) continue;
    errors.push_back({flag, "It applies to token files, and the data come from the seed.", "Add --tokens."});
  }
  if (options.token_dtype && options.tokens.empty() && options.evaluated.empty()) {
    errors.push_back({"--token-dtype", "It applies to token files, and the data come from the seed.", "Add --tokens."});
  }
  check_results(options, errors);
  const Errors unfit = settle_training_options(plan, options.steps, options.training);
  append(errors, unfit);
  if (errors.empty()) check_folder(options, start, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return start;
}

std::string summary_of(const RunStart& start) {
  std::string text;
  if (start.weights) {
    for (const StoredTensor& tensor : start.weights->tensors) {
      text += fmt::format("{} {} [{}]\n", tensor.name, name_of(tensor.dtype), fmt::join(tensor.shape, ", "));
    }
  }
  if (start.resumed) text += to_json(start.resumed->index);
  if (start.tokens) text += fmt::format("{} samples\n", start.tokens->samples());
  if (start.evaluated) text += fmt::format("{} samples are evaluated\n", start.evaluated->samples());
  return text;
}

Result<std::string> begin_run(const RunStart& start, Trainer& trainer, Agreement* agreement) {
  const c10::AutoGradMode no_gradient(false);
  if (start.resumed) {
    const Errors damaged = verify_checkpoint(*start.resumed, trainer, trainer.plan().mesh.world_size(), *agreement);
    if (!damaged.empty()) throw UnusableInput(damaged);
    const Result<void> loaded = load_checkpoint(*start.resumed, trainer);
    if (!loaded) return tl::unexpected(loaded.error());
    return fmt::format("resuming after step {} of {}", start.resumed->index.step, start.resumed->folder);
  }
  if (!start.weights) return std::string();
  const int shard_rank = trainer.shard_group().rank();
  FSDP_TRY(const std::int64_t bytes, load_weights(*start.weights, trainer.units(), trainer.buffers(), shard_rank));
  return fmt::format("rank {} has read {} of {} bytes of weights", trainer.rank(), bytes, start.weights->bytes());
}

}  // namespace fsdp::executor

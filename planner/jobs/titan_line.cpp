// Sources: torchtitan 0.2.2, config/manager.py (--job.config_file); torchtitan 0.3.0, config/manager.py (--module,
// --config); tyro 1.0 (words as "activation-checkpoint:full", "--training.no-disable-cuda-graphs"); PyTorch,
// torch/distributed/run.py.

#include "planner/jobs/titan_line.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "planner/jobs/argument_object.h"
#include "planner/jobs/job_keys.h"
#include "planner/jobs/launch_line.h"
#include "planner/jobs/titan_job.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kTitanModule = "torchtitan.train";

/// The place of the module, or of its file, which a repository has. 0 for other lines.
std::size_t place_of_titan(std::span<const std::string> words) {
  for (std::size_t w = 1; w < words.size(); ++w) {
    if (words[w] == kTitanModule && words[w - 1] == "-m") return w;
    const std::filesystem::path path(words[w]);
    if (path.filename() == "train.py" && path.parent_path().filename() == "torchtitan") return w;
  }
  return 0;
}

/// Words that name the kind of an object, "activation-checkpoint:full", as options.
std::vector<std::string> with_kinds_as_options(std::span<const std::string> words) {
  std::vector<std::string> result(words.begin(), words.end());
  for (std::string& word : result) {
    const std::size_t colon = word.find(':');
    std::string object = word.substr(0, colon);
    std::replace(object.begin(), object.end(), '-', '_');
    if (colon == std::string::npos || object != "activation_checkpoint") continue;
    word = "--activation_checkpoint.class=" + word.substr(colon + 1);
  }
  return result;
}

Result<JsonDocument> config_of(const ArgumentLine& arguments, std::size_t place,
                               const std::optional<TakenMember>& module, const std::optional<TakenMember>& config) {
  if (!module || !config) {
    return failure(arguments.where(place), "The line names no configuration.",
                   "Write --job.config_file FILE for torchtitan 0.2.2, or --module llama3 --config llama3_8b for 0.3.");
  }
  FSDP_TRY(std::optional<JsonDocument> shipped, shipped_titan_config(module->text, config->text, config->where));
  if (shipped) return *std::move(shipped);
  return failure(module->where, "It is no registry of torchtitan's own, and was not read.",
                 "Run fsdp-plan with the Python that has torchtitan 0.3 first on PATH.");
}

}  // namespace

namespace {

Result<Job> read_toml(const JobLaunch& launch) {
  return titan_job({launch.line, *launch.file, launch.launch_line, true});
}
Result<Job> read_registry(const JobLaunch& launch) {
  return titan_job({launch.line, *launch.file, launch.launch_line, false});
}

// --activation_checkpoint.class is no option of 0.3, whose line names the kind of an object by a word of its own.
constexpr KeyChange kRegistryChanges[] = {
    {PlanChoice::Reshard, "parallelism.fsdp_reshard_after_forward: always"},
    {PlanChoice::Reshard, "parallelism.fsdp_reshard_after_forward: default"},
    {PlanChoice::Reshard, "parallelism.fsdp_reshard_after_forward: never"},
    {PlanChoice::Batch, "training.local_batch_size: {batch}; training.global_batch_size: {samples}"},
    {PlanChoice::Shard,
     "parallelism.data_parallel_replicate_degree: {copies}; parallelism.data_parallel_shard_degree: {shards}"},
};

constexpr KeyChange kTomlChanges[] = {
    {PlanChoice::Checkpoint, "activation_checkpoint.mode: none"},
    {PlanChoice::Checkpoint, "activation_checkpoint.mode: selective; activation_checkpoint.selective_ac_option: op"},
    {PlanChoice::Checkpoint, "activation_checkpoint.mode: full"},
    {PlanChoice::Reshard, "parallelism.fsdp_reshard_after_forward: always"},
    {PlanChoice::Reshard, "parallelism.fsdp_reshard_after_forward: default"},
    {PlanChoice::Reshard, "parallelism.fsdp_reshard_after_forward: never"},
    {PlanChoice::Batch, "training.local_batch_size: {batch}; training.global_batch_size: {samples}"},
    {PlanChoice::Shard,
     "parallelism.data_parallel_replicate_degree: {copies}; parallelism.data_parallel_shard_degree: {shards}"},
    {PlanChoice::OptimizerImpl, "optimizer.implementation: fused"},
};

constexpr JobProgram kTomlProgram = {read_toml, kTomlChanges, {}, kTitanBatchUnset, OptionName::Whole};
constexpr JobProgram kRegistryProgram = {read_registry, kRegistryChanges, {}, kTitanBatchUnset, OptionName::Whole};
// The line has made the values of a registry of one's own, so changed options would need them to be made again.
constexpr JobProgram kOwnRegistryProgram = {read_registry, {}, {}, kTitanBatchUnset, OptionName::Whole};

}  // namespace

bool is_titan_line(std::span<const std::string> words) {
  return place_of_titan(words) > 0;
}

std::optional<std::vector<std::string>> own_titan_config(std::span<const std::string> words) {
  const std::size_t place = place_of_titan(words);
  if (place == 0) return std::nullopt;
  std::string module;
  for (std::size_t w = place + 1; w < words.size(); ++w) {
    if (words[w].starts_with("--module=")) module = words[w].substr(std::string("--module=").size());
    if (words[w] == "--module" && w + 1 < words.size()) module = words[w + 1];
  }
  if (module.empty() || is_shipped_titan_module(module)) return std::nullopt;
  return std::vector<std::string>(words.begin() + static_cast<std::ptrdiff_t>(place) + 1, words.end());
}

Result<JobSource> find_titan_line(std::span<const std::string> words, const std::optional<JsonDocument>& config,
                                  const FileReader& read_file) {
  const std::size_t place = place_of_titan(words);
  const std::vector<std::string> all = with_kinds_as_options(words);
  const ArgumentLine arguments(all);
  JobSource source{.program = &kRegistryProgram,
                   .launch = {},
                   .words = {words.begin(), words.end()},
                   .is_line = true,
                   .own = {place + 1, words.size()},
                   .of_launch = std::nullopt};
  JobLaunch& launch = source.launch;
  launch.launch_line = machines_of_torchrun(words, place);
  if (config) {
    launch.line = no_arguments();
    launch.file = *config;
    source.program = &kOwnRegistryProgram;
    return source;
  }
  FSDP_TRY(launch.line, arguments.object(place + 1, words.size(), same_key));
  if (const JsonValue* file = find_in(launch.line.root, "job.config_file")) {
    FSDP_TRY(launch.file, read_file(file->text));
    source.program = &kTomlProgram;
    return source;
  }
  const std::optional<TakenMember> module = taken(launch.line, "module");
  const std::optional<TakenMember> name = taken(launch.line, "config");
  FSDP_TRY(launch.file, config_of(arguments, place, module, name));
  return source;
}

bool is_titan_toml(const JsonDocument& file) {
  const JsonValue* model = file.root.find("model");
  const bool names_model = model != nullptr && (model->find("flavor") != nullptr || model->find("name") != nullptr);
  const auto has = [&](std::string_view table) { return file.root.find(table) != nullptr; };
  return names_model && (has("training") || has("parallelism") || has("activation_checkpoint") || has("job"));
}

JobSource titan_toml_source(JsonDocument file, const std::string& path) {
  return {.program = &kTomlProgram,
          .launch = {no_arguments(), std::move(file), no_arguments(), std::nullopt},
          .words = {"torchrun", "-m", "torchtitan.train", "--job.config_file", path},
          .is_line = false,
          .own = {5, 5},
          .of_launch = std::nullopt};
}

}  // namespace fsdp::planner

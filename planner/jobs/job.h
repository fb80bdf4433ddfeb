#pragma once

// A training run in the words of another program's configuration, as choices of ours.
//
// A reader of this folder takes a file, or the line that starts a training script, and says what it makes the trainer
// do as the texts of our options: "--lora r=16,alpha=32". Whoever plans reads these texts as if a user had typed them.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

/// One choice that a configuration makes.
struct JobWord {
  PlanChoice choice = PlanChoice::Gpus;
  std::string text;   ///< As after its option: "r=16,alpha=32".
  std::string where;  ///< The place that says so, "sft.yaml:12:1: /lora_r"; for a default of the program, its file.

  bool operator==(const JobWord&) const = default;
};

/// A program on the same GPUs that works between steps of the job, and sleeps in them: it generates.
struct SleepingEngine {
  std::string name;              ///< "vllm".
  double share = 0;              ///< Its part of each GPU's memory, when it works.
  bool keeps_parameters = true;  ///< The trained model's parameters stay on the GPU meanwhile,
  bool keeps_states = true;      ///< and the states of its optimizer.

  bool operator==(const SleepingEngine&) const = default;
};

struct Job {
  std::string program;  ///< With its release: "TRL 1.16.0".
  std::string model;    ///< As the configuration names it: on the hub, or a folder.
  /// The value of --for: the trainer that runs the plan. Empty if that trainer has none.
  std::string_view trainer;
  std::string_view trainer_version = {};  ///< That of --trainer-version. Empty for the newest.
  std::vector<JobWord> words;             ///< At most one for each choice.
  std::vector<std::string> notes;         ///< Sentences: what a program ignores, what overrides what, what was assumed.
  std::optional<SleepingEngine> engine = {};

  bool operator==(const Job&) const = default;
};

/// What a job says about a choice; null if it says nothing.
inline const JobWord* word_of(const Job& job, PlanChoice choice) {
  const auto found =
      std::find_if(job.words.begin(), job.words.end(), [&](const JobWord& word) { return word.choice == choice; });
  return found == job.words.end() ? nullptr : &*found;
}

/// What the user has typed beside a file, if what the file means depends on it.
struct TypedBesideJob {
  std::optional<std::int64_t> gpus = {};  ///< On all nodes together.
  bool has_sequence = false;              ///< Whether --seq was typed.
};

/// Whether a command starts a training that `read_job_line` reads: `trl sft`, `axolotl train`, `llamafactory-cli
/// train`, one of their scripts under `accelerate launch`, torchtitan.train under `torchrun`, or a module of verl.
bool is_job_line(std::span<const std::string> words);

/// The job of a file of YAML or TOML that names a model as a program's configurations do: `trl sft --config PATH`,
/// `axolotl train PATH`, `automodel PATH`, or torchtitan's `--job.config_file PATH`. nullopt for every other file.
/// Errors: those of the files; every unknown key, with the nearest one; everything that cannot be predicted, each with
/// its place and what would work.
Result<std::optional<Job>> read_job(const std::string& path, const TypedBesideJob& typed = {});

/// The arguments of a line whose Python configuration torchtitan's own program has to read, since the project has no
/// table of it: python/fsdp_torchtitan/read_config.py prints it as JSON. nullopt for every other line.
std::optional<std::vector<std::string>> own_titan_config(std::span<const std::string> words);

/// The job of a line that starts a training: "accelerate launch --config_file fsdp.yaml sft.py --model_name_or_path
/// Qwen/Qwen3-8B", or "axolotl train FILE". `config`: what own_titan_config asks for. Errors: those of `read_job`;
/// another script.
Result<Job> read_job_line(std::span<const std::string> words, const std::optional<JsonDocument>& config = {});

}  // namespace fsdp::planner

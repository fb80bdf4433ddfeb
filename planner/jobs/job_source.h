#pragma once

// The documents of a job before they mean anything, and what a program's keys can be changed to.
//
// Each program has a table of changes: the keys that decide a choice which a search is free to make, with the values
// worth trying. What a value means is for the program's reader alone. So a changed document is read as any other, a
// value that the reader refuses is never chosen, and no table has to agree with another one.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "planner/jobs/job.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

/// The documents of a job. A line counts before a file.
struct JobLaunch {
  JsonDocument line;                     ///< The program's own arguments on the line, as an object.
  std::optional<JsonDocument> file;      ///< Its own configuration.
  JsonDocument launch_line;              ///< Arguments of `accelerate launch`.
  std::optional<JsonDocument> launcher;  ///< The launch configuration.
  TypedBesideJob typed = {};             ///< What was typed beside a file.
  bool is_accelerate = false;            ///< For LLaMA-Factory: `accelerate launch` starts the processes.
};

/// One way to make a choice: keys with their values in YAML, "a: true; b.c: 8; +plugins: NAME". A list that "+" names
/// has the value added, if it lacks it. {batch} and {accumulation} are a micro-batch and an accumulation with the
/// samples of a step that the job has, and {samples} are these samples; {copies} and {shards} are a mesh of all GPUs.
struct KeyChange {
  PlanChoice choice = PlanChoice::Reshard;  ///< Changes of one choice exclude each other.
  std::string_view settings;
};

/// How a key is an option of a line.
enum class OptionName : std::uint8_t {
  First,     ///< "--training {...}": an object's, whose members are JSON.
  Last,      ///< "--seq_len 8", as accelerate's options are.
  Whole,     ///< "--training.seq_len 8"
  Override,  ///< "training.seq_len=8", as Hydra's are.
};

/// A program whose configurations are read.
struct JobProgram {
  Result<Job> (*read)(const JobLaunch& launch) = nullptr;
  std::span<const KeyChange> changes;         ///< Changes of its own keys.
  std::span<const KeyChange> launch_changes;  ///< Changes of its launch configuration.
  std::int64_t batch_unset = 1;               ///< The micro-batch if no key has it.
  OptionName options = OptionName::First;     ///< Its own, on a line.
};

/// Some of the words of a line.
struct WordRange {
  std::size_t from = 0;
  std::size_t to = 0;

  bool operator==(const WordRange&) const = default;
};

/// A job as it was given.
struct JobSource {
  const JobProgram* program = nullptr;
  JobLaunch launch;
  std::vector<std::string> words;      ///< The line; for a file alone, the line that starts it.
  bool is_line = false;                ///< The line was given.
  WordRange own;                       ///< The words of the program's own options.
  std::optional<WordRange> of_launch;  ///< Those of the launch; `nullopt` if a line cannot have them.
};

/// Reads a configuration. read_config_file is one.
using FileReader = std::function<Result<JsonDocument>(const std::string& path)>;

/// Parses TOML if the file's name ends with .toml, else YAML. Errors: those of parse_toml and parse_yaml.
Result<JsonDocument> parse_config(std::string text, const std::string& path);
Result<JsonDocument> read_config_file(const std::string& path);

/// What `read_job` and `read_job_line` read (planner/jobs/job.h). Errors: those of the files and of the line.
Result<std::optional<JobSource>> find_job(const std::string& path, const FileReader& read_file);
/// `config`: as for read_job_line.
Result<JobSource> find_job_line(std::span<const std::string> words, const FileReader& read_file,
                                const std::optional<JsonDocument>& config = {});

}  // namespace fsdp::planner

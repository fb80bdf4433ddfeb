#pragma once

// The other jobs that a program's keys can ask for, and the files and lines that do.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "planner/jobs/job.h"
#include "planner/jobs/job_source.h"

namespace fsdp::planner {

/// A key with another value.
struct KeySetting {
  std::string key;
  JsonValue value;
  bool is_of_launch = false;  ///< A key of the launch configuration.
};

/// A job that differs from the given one in a few keys.
struct JobVariant {
  std::vector<KeySetting> settings;  ///< None for the given job. No one of them is without effect.
  Job job;
};

/// What a variant must keep.
struct VariantLimits {
  std::int64_t num_gpus = 0;                 ///< All of them; with 0, other meshes are not tried.
  std::optional<std::int64_t> batch;         ///< A micro-batch that is wanted, whatever the samples of a step.
  std::optional<std::int64_t> accumulation;  ///< The same.
};

/// The given job and each other one that the changes of its program make of it, with the fewest keys that do. They
/// differ in choices that a search is free to make, and train the same samples a step. Errors: those of the given job.
Result<std::vector<JobVariant>> variants_of(const JobSource& source, const VariantLimits& limits);

/// A change for people.
struct KeyEdit {
  std::string file;    ///< Empty for the line.
  std::string key;     ///< "fsdp_config.reshard_after_forward", or "--max_length".
  std::string before;  ///< As the file has it. Empty if it does not.
  std::string after;

  bool operator==(const KeyEdit&) const = default;
};

struct EditedFile {
  std::string name;
  std::string before;
  std::string after;

  bool operator==(const EditedFile&) const = default;
};

/// A job in its own files and line.
struct EditedJob {
  std::vector<KeyEdit> edits;
  std::vector<EditedFile> files;   ///< Those that change.
  std::vector<std::string> words;  ///< The line; empty if it does not change.

  bool operator==(const EditedJob&) const = default;
};

/// Writes a variant. Reads the result again: it is the variant's job. Errors: a place that cannot be changed alone.
Result<EditedJob> edited(const JobSource& source, const JobVariant& variant);

}  // namespace fsdp::planner

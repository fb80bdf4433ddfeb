#pragma once

// What readers of a program's own keys share: adding words, and the keys of transformers' Trainer that mean the same to
// all of them.

#include <string>
#include <string_view>
#include <utility>

#include "planner/jobs/job_builder.h"

namespace fsdp::planner {

/// A base of readers.
class JobReader {
 protected:
  /// REQUIRES: `keys` and `job` outlive this object.
  JobReader(JobKeys& keys, Job& job) : keys_(keys), job_(job) {}

  /// Adds a word, which a key says.
  void add(PlanChoice choice, std::string text, std::string_view key) {
    say(job_, choice, std::move(text), keys_.where(key));
  }
  /// Whether a flag is given and true.
  bool is_on(std::string_view key) { return keys_.flag(key).value_or(false); }

  /// gradient_accumulation_steps and sync_each_batch.
  void say_accumulation();
  /// max_grad_norm.
  void say_clipping();
  /// ddp_find_unused_parameters, or `finds_unused` if it is unset; refuses buffers that are not broadcast.
  void say_ddp_arguments(bool finds_unused);

  JobKeys& keys_;
  Job& job_;
};

}  // namespace fsdp::planner

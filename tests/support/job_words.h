#pragma once

// What a job that was read says, as tests compare it.

#include <string>

#include "core/base/result.h"
#include "planner/jobs/job.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

/// The text of a choice; empty if the job does not make it.
inline std::string said(const Job& job, PlanChoice choice) {
  const JobWord* word = word_of(job, choice);
  return word == nullptr ? std::string() : word->text;
}

/// The errors, one a line; empty if there is a job.
inline std::string all_errors(const Result<Job>& job) {
  std::string all;
  if (job) return all;
  for (const Error& error : job.error()) all += to_string(error) + "\n";
  return all;
}

/// The notes, one a line.
inline std::string all_notes(const Job& job) {
  std::string all;
  for (const std::string& note : job.notes) all += note + "\n";
  return all;
}

}  // namespace fsdp::planner

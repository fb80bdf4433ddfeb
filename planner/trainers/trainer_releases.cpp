// The trainer releases that we have read and run, and their differences.
//
// Sources: accelerate 1.12.0, 1.13.0, 1.14.0 and 1.15.0 (utils/fsdp_utils.py fsdp2_prepare_model: units of the ends
// since 1.14); transformers 4.57.3 and 5.24.0 (training_args.py); torchtitan 0.2.2 and 0.3.0 (config/manager.py);
// DeepSpeed 0.19.8.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/base/nearest.h"
#include "planner/trainers/trainers.h"

namespace fsdp::planner {

namespace {

TrainerRelease with(TrainerRelease release, bool TrainerRelease::*field) {
  release.*field = true;
  return release;
}

TrainerRelease newest_transformers() {
  TrainerRelease release(Trainer::Transformers, "5.24.0", "transformers' Trainer 5.24.0");
  release.has_units_of_ends = true;
  release.has_keys_of_fsdp2 = true;
  release.takes_norms = true;
  release.can_sync_each_batch = true;
  release.can_offload_inputs = true;
  release.can_configure_fsdp1 = true;
  return release;
}

/// [trainers][releases]
const std::vector<std::vector<TrainerRelease>>& all_releases() {
  static const std::vector<std::vector<TrainerRelease>> kAll = {
      {with(with({Trainer::Accelerate, "1.15.0", "accelerate 1.15.0"}, &TrainerRelease::has_units_of_ends),
            &TrainerRelease::can_offload_inputs),
       {Trainer::Accelerate, "1.12.0", "accelerate 1.12.0"}},
      {newest_transformers(), {Trainer::Transformers, "4.57.3", "transformers' Trainer 4.57.3"}},
      {with({Trainer::Torchtitan, "0.3.0", "torchtitan 0.3.0"}, &TrainerRelease::has_registry),
       {Trainer::Torchtitan, "0.2.2", "torchtitan 0.2.2"}},
      {{Trainer::DeepSpeed, "0.19.8", "DeepSpeed 0.19.8"}},
  };
  return kAll;
}

}  // namespace

TrainerRelease::TrainerRelease(Trainer of) : TrainerRelease(releases_of(of).front()) {}

std::span<const TrainerRelease> releases_of(Trainer trainer) {
  return all_releases()[static_cast<std::size_t>(trainer)];
}

Result<TrainerRelease> find_release(Trainer trainer, std::string_view version, std::string_view where) {
  std::vector<std::string_view> known;
  for (const TrainerRelease& release : releases_of(trainer)) {
    if (release.version == version || release.version.starts_with(std::string(version) + ".")) return release;
    known.push_back(release.version);
  }
  return failure(std::string(where), fmt::format("No configuration is written for release \"{}\".", version),
                 fmt::format("Known are {}.", join_names(known)));
}

}  // namespace fsdp::planner

// A rank reads its own rows under its own plan, whichever ranks, mesh or units wrote them, and gets the same bits. Only
// the ranks' generators cannot be redistributed: with another number of ranks each starts a new one, from the seed, the
// step and its rank.
//
// A checksum covers a whole file, and a rank reads parts of several. So the ranks first divide the files among them,
// and each reads its files completely.

#include "executor/checkpoint/checkpoint_load.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <utility>

#include "core/plan/optimizer_table.h"
#include "executor/checkpoint/weights.h"
#include "executor/memory/counting_allocator.h"
#include "executor/training/random_state.h"

namespace fsdp::executor {

namespace {

constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio.

const StoredTensor* find_state(const StoredTensors& states, const Parameter& parameter, std::string_view what) {
  if (what.empty()) return nullptr;
  const auto under = [&](const std::string& name) { return states.find(fmt::format("state.{}.{}", name, what)); };
  if (const StoredTensor* found = under(parameter.name)) return found;
  for (const std::string& name : parameter.tied_names) {
    if (const StoredTensor* found = under(name)) return found;
  }
  return nullptr;
}

void check_states(const StoredTensors& states, const Model& model, const Plan& plan, const std::string& folder,
                  std::int64_t steps, Errors& errors) {
  const auto& names = optimizer_row(plan.optimizer).moments;
  const bool has_moments = num_moments(plan.optimizer) > 0;
  bool is_trained = false;
  bool has_some = false;
  for (const Parameter& parameter : model.parameters) {
    if (!parameter.trainable) continue;
    const bool is_stepped = find_state(states, parameter, "step") != nullptr;
    is_trained = is_trained || parameter.receives_gradient;
    has_some = has_some || is_stepped || find_state(states, parameter, names[0]) != nullptr;
    for (const std::string_view what : names) {
      const StoredTensor* found = find_state(states, parameter, what);
      if (found != nullptr && found->shape != parameter.shape) {
        errors.push_back({folder, fmt::format("{} of {} has a different shape.", what, parameter.name), ""});
      }
      const bool is_missing = found == nullptr && !what.empty() && is_stepped && !names[1].empty();
      if (is_missing) errors.push_back({folder, fmt::format("{} of {} is in no file.", what, parameter.name), ""});
    }
  }
  if (steps > 0 && has_moments && is_trained && !has_some) {
    errors.push_back({folder, fmt::format("It has {} steps, but no optimizer moments in any file.", steps),
                      fmt::format("To begin with its parameters alone: --weights {}/{}", folder, kCheckpointModel)});
  }
}

void check_model(const CheckpointIndex& index, const Model& model, const std::string& folder, Errors& errors) {
  const std::string fingerprint = fingerprint_of(model);
  if (index.model_fingerprint == fingerprint) return;
  if (index.model.empty() || index.model_fingerprint.empty()) {
    errors.push_back({folder, "The index does not name the checkpoint's model.",
                      fmt::format("Convert it again with --plan, or begin with its parameters alone: --weights {}/{}",
                                  folder, kCheckpointModel)});
    return;
  }
  errors.push_back({folder,
                    fmt::format("The checkpoint is for the model \"{}\" ({}), but the plan for \"{}\" ({}).",
                                index.model, index.model_fingerprint, model.name, fingerprint),
                    "Resume with a plan of that model."});
}

Result<void> load_moment(const at::Tensor& to, StoredReader& reader, const StoredTensor& stored,
                         const ParameterState& state, std::int64_t shard_rank) {
  return read_into(to, reader, stored, first_element(state.layout, shard_rank));
}

Result<std::int64_t> read_step(StoredReader& reader, const StoredTensor& stored) {
  const at::Tensor count = at::empty({1}, c10::kDouble);
  const Result<void> read = read_into(count, reader, stored, 0);
  if (!read) return tl::unexpected(read.error());
  return static_cast<std::int64_t>(count.item<double>());
}

Result<void> load_moments(const ResumedCheckpoint& checkpoint, Trainer& trainer) {
  const auto& names = optimizer_row(trainer.plan().optimizer).moments;
  StoredReader reader(checkpoint.states);
  const std::int64_t shard_rank = trainer.shard_group().rank();
  for (std::size_t i = 0; i < trainer.trained().size(); ++i) {
    const ParameterState& state = *trainer.trained()[i];
    Moments& moments = trainer.optimizer().moments()[i];
    const StoredTensor* step = find_state(checkpoint.states, *state.parameter, "step");
    const StoredTensor* first = find_state(checkpoint.states, *state.parameter, names[0]);
    const StoredTensor* second = find_state(checkpoint.states, *state.parameter, names[1]);
    if (step == nullptr && first == nullptr) continue;
    moments.step = std::max<std::int64_t>(1, checkpoint.index.step);  // PyTorch's SGD counts no steps.
    if (step != nullptr) {
      FSDP_TRY(moments.step, read_step(reader, *step));
    }
    if (first == nullptr) continue;
    if (second != nullptr) {
      if (!moments.first.defined()) trainer.optimizer().make_moments(i);
      if (moments.step_on_device.defined()) moments.step_on_device.fill_(moments.step);
      const Result<void> read = load_moment(moments.second, reader, *second, state, shard_rank);
      if (!read) return read;
    } else if (!moments.first.defined()) {
      const CategoryScope states(MemoryCategory::OptState);
      moments.first = at::zeros_like(state.local);
    }
    const Result<void> read = load_moment(moments.first, reader, *first, state, shard_rank);
    if (!read) return read;
  }
  return {};
}

Result<void> load_generator(const ResumedCheckpoint& checkpoint, Trainer& trainer) {
  const StoredTensor* stored = checkpoint.states.find(fmt::format("random.{}", trainer.rank()));
  const bool is_alike = checkpoint.index.mesh.world_size() == trainer.plan().mesh.world_size();
  if (!is_alike || stored == nullptr) {
    const auto step = static_cast<std::uint64_t>(checkpoint.index.step);
    at::manual_seed(static_cast<std::uint64_t>(checkpoint.index.seed) + (step + 1) * kOdd +
                    static_cast<std::uint64_t>(trainer.rank()));
    return {};
  }
  StoredReader reader(checkpoint.states);
  std::string state(static_cast<std::size_t>(num_elements(stored->shape)), '\0');
  const Result<void> read = reader.read(*stored, 0, std::ssize(state), state.data());
  if (!read) return read;
  set_random_state(trainer.device(), state);
  return {};
}

}  // namespace

Result<ResumedCheckpoint> read_checkpoint(const std::string& folder, const Model& model, const Plan& plan) {
  ResumedCheckpoint checkpoint{.folder = folder, .index = {}, .model = {}, .states = {}};
  FSDP_TRY(checkpoint.index, read_checkpoint_index(folder));
  Errors errors = check_files(checkpoint.index, folder);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  if (checkpoint.index.optimizer != plan.optimizer.kind) {
    errors.push_back({folder, "The checkpoint has another optimizer than the plan.",
                      fmt::format("To begin with its parameters alone: --weights {}/{}", folder, kCheckpointModel)});
  }
  check_model(checkpoint.index, model, folder, errors);
  const auto files_in = [&](std::string_view part) {
    std::vector<std::string> files;
    for (const CheckpointFile& file : checkpoint.index.files) {
      if (file.name.starts_with(fmt::format("{}/", part))) files.push_back(folder + "/" + file.name);
    }
    return files;
  };
  FSDP_TRY(checkpoint.model, read_stored_tensors(files_in(kCheckpointModel)));
  FSDP_TRY(checkpoint.states, read_stored_tensors(files_in(kCheckpointOptimizer)));
  const Errors unfit = check_weights(checkpoint.model, model);
  append(errors, unfit);
  check_states(checkpoint.states, model, plan, folder, checkpoint.index.step, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return checkpoint;
}

Errors verify_checkpoint(const ResumedCheckpoint& checkpoint, const Trainer& trainer, std::int64_t world_size,
                         Agreement& agreement) {
  std::string own;
  for (std::size_t i = static_cast<std::size_t>(trainer.rank()); i < checkpoint.index.files.size();
       i += static_cast<std::size_t>(world_size)) {
    const Result<void> verified = verify_file(checkpoint.index.files[i], checkpoint.folder);
    if (!verified) own += to_string(verified.error().front()) + "\n";
  }
  std::string all;  // The same on all ranks.
  for (const std::string& text : agreement.gather(own)) all += text;
  Errors errors;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = all.find('\n', begin);
    errors.push_back({"", all.substr(begin, end - begin), ""});
    begin = end + 1;
  }
  return errors;
}

Result<void> load_checkpoint(const ResumedCheckpoint& checkpoint, Trainer& trainer) {
  const int shard_rank = trainer.shard_group().rank();
  const auto read = load_weights(checkpoint.model, trainer.units(), trainer.buffers(), shard_rank);
  if (!read) return tl::unexpected(read.error());
  const Result<void> moments = load_moments(checkpoint, trainer);
  if (!moments) return moments;
  const CheckpointIndex& index = checkpoint.index;
  trainer.set_progress({.steps = index.step, .micro_batches = index.micro_batches, .samples = index.samples});
  return load_generator(checkpoint, trainer);
}

}  // namespace fsdp::executor

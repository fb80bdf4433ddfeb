// A checkpoint is written in a folder with another name, .step-N.partial. One rename gives it its final name, after
// every file and folder of it is on the disk. Before that instant a reader sees the earlier checkpoints, after it also
// the new one; after a crash in between, nobody reads the folder and the next run removes it. An old checkpoint is
// removed in the same way: it is renamed first.
//
// The files: parameters and persistent buffers in model/, moments and step counters in optimizer/, in the ranks' dtypes
// and rows, under the names of torch.distributed.checkpoint.state_dict (flatten_optimizer_state_dict); the state of
// each rank's generator as random.RANK with the moments.
//
// Not modeled: writing while the training continues.

#include "executor/checkpoint/checkpoint_save.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/base/files.h"
#include "core/plan/optimizer_table.h"
#include "executor/checkpoint/part_file.h"
#include "executor/training/random_state.h"

namespace fsdp::executor {

namespace {

constexpr const char* kError = "error";
constexpr const char* kTemporaryEnding = ".partial";
constexpr const char* kRemovedEnding = ".removed";
constexpr const char* kMustBeShared = "Give a folder that all hosts share.";

/// PyTorch's name for the file of one shard (torch/distributed/checkpoint/_hf_utils.py).
std::string shard_file(std::string_view folder, int shard_rank) {
  return fmt::format("{}/shard-{:05}-model-00001-of-00001.safetensors", folder, shard_rank + 1);
}

std::int64_t first_row(const ParameterState& state, int shard_rank) {
  const Shape& shape = state.parameter->shape;
  const std::int64_t row = shape.front() == 0 ? 0 : state.layout.elements / shape.front();
  return row == 0 ? 0 : shard_rank * state.layout.shard_elements / row;
}

std::vector<TensorPart> parameter_parts(Trainer& trainer) {
  const int shard_rank = trainer.shard_group().rank();
  std::vector<TensorPart> parts;
  for (auto& unit : trainer.units()) {
    for (const ParameterState& state : unit->parameters()) {
      if (state.layout.local_elements == 0) continue;
      parts.push_back({state.parameter->name, state.local, first_row(state, shard_rank)});
    }
  }
  return parts;
}

std::vector<TensorPart> model_parts(Trainer& trainer) {
  const int shard_rank = trainer.shard_group().rank();
  std::vector<TensorPart> parts = parameter_parts(trainer);
  if (shard_rank != 0) return parts;
  for (const Buffer& buffer : trainer.model().buffers) {
    if (buffer.persistent) parts.push_back({buffer.name, trainer.buffers().at(buffer.name), 0});
  }
  return parts;
}

std::vector<TensorPart> optimizer_parts(Trainer& trainer, const OptimizerRow& row) {
  const int shard_rank = trainer.shard_group().rank();
  std::vector<TensorPart> parts;
  for (std::size_t i = 0; i < trainer.trained().size(); ++i) {
    const ParameterState& state = *trainer.trained()[i];
    const Moments& moments = trainer.optimizer().moments()[i];
    if (moments.step == 0) continue;
    const std::string name = "state." + state.parameter->name + ".";
    if (shard_rank == 0) {
      parts.push_back({name + "step", at::full({}, static_cast<double>(moments.step), c10::kFloat), 0});
    }
    if (state.layout.local_elements == 0 || !moments.first.defined()) continue;
    const std::int64_t first = first_row(state, shard_rank);
    parts.push_back({name + std::string(row.moments[0]), moments.first, first});
    if (moments.second.defined()) parts.push_back({name + std::string(row.moments[1]), moments.second, first});
  }
  return parts;
}

std::string text_of(const Errors& errors) {
  std::string text;
  for (const Error& error : errors) text += (text.empty() ? "" : " ") + to_string(error);
  return text;
}

/// The message of a rank about a file that it wrote, and how rank 0 reads it.
std::string status_of(const CheckpointFile& file) {
  return fmt::format("file {} {} {}\n", file.name, file.bytes, file.crc32);
}

void add_files(const std::string& status, CheckpointIndex& index) {
  std::istringstream lines(status);
  std::string word;
  CheckpointFile file;
  while (lines >> word >> file.name >> file.bytes >> file.crc32) index.files.push_back(file);
}

/// For rank 0: the error about a file that only another host has. Empty if all files are here.
std::string missing_file(const std::string& folder, const CheckpointIndex& index) {
  for (const CheckpointFile& file : index.files) {
    std::error_code error;
    const std::string path = folder + "/" + file.name;
    const auto bytes = std::filesystem::file_size(path, error);
    if (!error && static_cast<std::int64_t>(bytes) == file.bytes) continue;
    return fmt::format("rank 0: {}: Its rank has written this file, and it is not here. {}", path, kMustBeShared);
  }
  return "";
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointSettings settings, CheckpointIndex about, Trainer& trainer,
                                   Agreement& agreement)
    : settings_(std::move(settings)), about_(std::move(about)), trainer_(trainer), agreement_(agreement) {
  // With this, a file over a limit of the shell is an error of write(), not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  steps_before_ = checkpoint_steps(settings_.folder);
  if (trainer_.rank() != 0) return;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(settings_.folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_left_over =
        name.starts_with(".step-") && (name.ends_with(kTemporaryEnding) || name.ends_with(kRemovedEnding));
    if (is_left_over) std::filesystem::remove_all(entry.path(), ignored);
  }
}

bool CheckpointWriter::is_due(std::int64_t step, std::int64_t last_step) const {
  return step == last_step || (settings_.every > 0 && step % settings_.every == 0);
}

bool CheckpointWriter::has(std::int64_t step) const {
  return std::find(steps_before_.begin(), steps_before_.end(), step) != steps_before_.end();
}

std::string CheckpointWriter::temporary() const {
  return fmt::format("{}/.{}{}", settings_.folder, checkpoint_name(trainer_.progress().steps), kTemporaryEnding);
}

Result<std::string> CheckpointWriter::save() {
  const auto began = std::chrono::steady_clock::now();
  const std::int64_t step = trainer_.progress().steps;
  agreement_.sync();  // Begins nothing that a lost rank would leave half done.
  std::error_code error;
  if (trainer_.rank() == 0) {
    std::filesystem::remove_all(temporary(), error);
    std::filesystem::create_directories(temporary() + "/" + std::string(kCheckpointModel), error);
    if (!error) std::filesystem::create_directories(temporary() + "/" + std::string(kCheckpointOptimizer), error);
  }
  const bool writes = trainer_.rank() < about_.mesh.dp_shard();
  const std::vector<std::string> random_states = agreement_.gather(random_state(trainer_.device()));
  // Ranks may have to exchange their data, whether or not a folder exists.
  RankFiles files;
  if (writes) files = files_of_rank(random_states);
  std::string own;
  if (error) own = fmt::format("{} {}: {}", kError, temporary(), error.message());
  if (!error && writes) own = write_own_files(files);
  const std::vector<std::string> statuses = agreement_.gather(own);
  const std::string result = agreement_.tell(trainer_.rank() == 0 ? publish(statuses) : "");
  if (result.starts_with(kError)) return failure("", result.substr(std::string_view(kError).size() + 1));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return fmt::format("checkpoint of step {}: {} in {:.3f} s", step, result, took.count());
}

CheckpointWriter::RankFiles CheckpointWriter::files_of_rank(const std::vector<std::string>& random_states) {
  const std::int64_t shard = about_.mesh.dp_shard();
  const int shard_rank = trainer_.shard_group().rank();
  RankFiles files;
  files.emplace_back(shard_file(kCheckpointModel, shard_rank), model_parts(trainer_));
  files.emplace_back(shard_file(kCheckpointOptimizer, shard_rank),
                     optimizer_parts(trainer_, optimizer_row(about_.optimizer)));
  for (std::int64_t rank = shard_rank; rank < about_.mesh.world_size(); rank += shard) {
    std::string state = random_states[rank];
    files.back().second.push_back(
        {fmt::format("random.{}", rank), at::from_blob(state.data(), {std::ssize(state)}, c10::kByte).clone(), 0});
  }
  return files;
}

std::string CheckpointWriter::write_own_files(const RankFiles& files) {
  std::string status;
  std::error_code ignored;
  if (!std::filesystem::is_directory(temporary(), ignored)) {
    return fmt::format("{} rank {}: {}: Rank 0 has made this folder, and it is not here. {}", kError, trainer_.rank(),
                       temporary(), kMustBeShared);
  }
  for (const auto& [name, parts] : files) {
    const Result<CheckpointFile> written = write_part_file(temporary(), name, parts);
    if (!written) return fmt::format("{} rank {}: {}", kError, trainer_.rank(), text_of(written.error()));
    status += status_of(*written);
  }
  return status;
}

// For rank 0: publishes the checkpoint, or removes it. Returns its size and place, or the error.
std::string CheckpointWriter::publish(const std::vector<std::string>& statuses) {
  const Progress progress = trainer_.progress();
  CheckpointIndex index = about_;
  index.step = progress.steps;
  index.micro_batches = progress.micro_batches;
  index.samples = progress.samples;
  std::string failed;
  for (const std::string& status : statuses) {
    if (failed.empty() && status.starts_with(kError)) failed = status.substr(std::string_view(kError).size() + 1);
    add_files(status, index);
  }
  const std::string from = temporary();
  if (failed.empty()) failed = missing_file(from, index);
  const std::string to = fmt::format("{}/{}", settings_.folder, checkpoint_name(progress.steps));
  if (failed.empty()) {
    Result<void> made =
        write_file_atomically(from + "/" + std::string(kCheckpointIndexName), to_json(index), Overwrite::Allow);
    for (const std::string& folder :
         {from + "/" + std::string(kCheckpointModel), from + "/" + std::string(kCheckpointOptimizer), from}) {
      if (made) made = sync_folder(folder);
    }
    std::error_code error;
    if (made) std::filesystem::rename(from, to, error);
    if (error) made = failure(to, fmt::format("The folder cannot be made: {}.", error.message()));
    if (made) made = sync_folder(settings_.folder);
    if (!made) failed = fmt::format("rank 0: {}", text_of(made.error()));
  }
  if (!failed.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(from, ignored);
    const std::vector<std::int64_t> left = checkpoint_steps(settings_.folder);
    return fmt::format("{} the checkpoint of step {} was not written: {} {}", kError, progress.steps, failed,
                       left.empty()
                           ? "There is none before it."
                           : fmt::format("The last one is {}/{}.", settings_.folder, checkpoint_name(left.back())));
  }
  remove_old();
  std::int64_t bytes = 0;
  for (const CheckpointFile& file : index.files) bytes += file.bytes;
  return fmt::format("{}, {} bytes", to, bytes);
}

void CheckpointWriter::remove_old() const {
  if (settings_.keep == 0) return;
  std::vector<std::int64_t> steps = checkpoint_steps(settings_.folder);
  steps.resize(steps.size() - std::min(steps.size(), static_cast<std::size_t>(settings_.keep)));
  for (const std::int64_t step : steps) {
    std::error_code error;
    const std::string gone = fmt::format("{}/.{}{}", settings_.folder, checkpoint_name(step), kRemovedEnding);
    std::filesystem::rename(fmt::format("{}/{}", settings_.folder, checkpoint_name(step)), gone, error);
    if (!error) std::filesystem::remove_all(gone, error);
  }
}

}  // namespace fsdp::executor

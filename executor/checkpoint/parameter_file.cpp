#include "executor/checkpoint/parameter_file.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/formats/safetensors.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

namespace {

std::int64_t bytes_of(const ParameterState& state) {
  return state.layout.elements * static_cast<std::int64_t>(c10::elementSize(state.dtype));
}

std::string header_of(const std::vector<ParameterState*>& parameters) {
  std::vector<SafetensorsEntry> entries;
  for (const ParameterState* state : parameters) {
    SafetensorsEntry entry;
    entry.name = state->parameter->name;
    entry.dtype = dtype_of(state->dtype);
    entry.shape = state->parameter->shape;
    entries.push_back(std::move(entry));
  }
  return safetensors_header_text(entries);
}

/// A file that is written under a temporary name, and renamed when it is complete.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)), file_(std::fopen((path_ + ".part").c_str(), "wb")) {}
  ~NewFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove((path_ + ".part").c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  bool write(const void* data, std::size_t bytes) {
    return file_ != nullptr && std::fwrite(data, 1, bytes, file_) == bytes;
  }
  bool finish() {
    if (file_ == nullptr || std::fclose(std::exchange(file_, nullptr)) != 0) return false;
    return std::rename((path_ + ".part").c_str(), path_.c_str()) == 0;
  }

 private:
  std::string path_;
  std::FILE* file_;
};

at::Tensor gathered(const ParameterState& state, Group& shard) {
  if (shard.size() == 1) return state.shard;
  const at::Tensor whole = at::empty({shard.size() * state.layout.shard_elements}, state.dtype);
  shard.all_gather(whole, state.shard)->wait();
  return whole;
}

}  // namespace

Result<void> save_whole_parameters(Trainer& trainer, const std::string& path, bool writes) {
  std::vector<ParameterState*> parameters;
  for (auto& unit : trainer.units()) {
    for (ParameterState& state : unit->parameters()) parameters.push_back(&state);
  }
  std::sort(parameters.begin(), parameters.end(),
            [](const ParameterState* a, const ParameterState* b) { return a->parameter->name < b->parameter->name; });
  std::unique_ptr<NewFile> file;
  bool is_good = true;
  if (writes) {
    file = std::make_unique<NewFile>(path);
    const std::string header = header_of(parameters);
    is_good = file->write(header.data(), header.size());
  }
  for (const ParameterState* state : parameters) {
    const at::Tensor whole = gathered(*state, trainer.shard_group());
    if (writes) is_good = is_good && file->write(whole.data_ptr(), static_cast<std::size_t>(bytes_of(*state)));
  }
  if (writes && (!is_good || !file->finish())) {
    return failure(path, fmt::format("It cannot be written: {}.", std::strerror(errno)), "");
  }
  return {};
}

}  // namespace fsdp::executor

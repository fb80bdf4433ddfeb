// Source of the format: https://huggingface.co/docs/safetensors (eight bytes with the length of the header, the header
// as JSON with dtype, shape and data_offsets of each tensor, the bytes).

#include "executor/parameter_file.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/json_writer.h"
#include "executor/tensors.h"

namespace fsdp::executor {

namespace {

std::string_view safetensors_name(c10::ScalarType type) {
  switch (type) {
    case c10::kDouble:
      return "F64";
    case c10::kFloat:
      return "F32";
    case c10::kHalf:
      return "F16";
    case c10::kBFloat16:
      return "BF16";
    case c10::kLong:
      return "I64";
    case c10::kInt:
      return "I32";
    case c10::kByte:
      return "U8";
    case c10::kBool:
      return "BOOL";
    default:
      return "U8";
  }
}

std::int64_t bytes_of(const ParameterState& state) {
  return state.layout.elements * static_cast<std::int64_t>(c10::elementSize(state.dtype));
}

std::string header_of(const std::vector<ParameterState*>& parameters) {
  JsonWriter writer;
  writer.begin_object();
  std::int64_t begin = 0;
  for (const ParameterState* state : parameters) {
    writer.key(state->parameter->name);
    writer.begin_object(JsonLayout::OneLine);
    writer.member("dtype", safetensors_name(state->dtype));
    writer.member("shape", state->parameter->shape);
    writer.member("data_offsets", std::vector<std::int64_t>{begin, begin + bytes_of(*state)});
    writer.end_object();
    begin += bytes_of(*state);
  }
  writer.end_object();
  std::string text = std::move(writer).take();
  while (text.size() % 8 != 0) text += ' ';
  return text;
}

/// Written beside the file that it becomes when all is there.
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
    const std::uint64_t length = header.size();
    is_good = file->write(&length, sizeof(length)) && file->write(header.data(), header.size());
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

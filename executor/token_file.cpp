// The file is mapped, so that a rank touches the pages of its own samples only. Which sample a rank trains next follows
// from how many all ranks have trained, never from how many ranks there are: the order is that of the file.
//
// Sources: numpy/lib/format.py (the .npy format, versions 1 to 3).
//
// Not modelled: shuffling, borders of documents.

#include "executor/token_file.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "executor/synthetic.h"

namespace fsdp::executor {

namespace {

constexpr std::string_view kNumpy = "\x93NUMPY";
constexpr std::int64_t kLargestOfTwoBytes = 65536;
constexpr std::string_view kIds = "input_ids";
constexpr std::string_view kLabels = "labels";

struct IdType {
  const char* name;
  const char* numpy;
  std::int64_t bytes;
  bool is_signed;
};
constexpr IdType kTypes[] = {
    {"uint16", "<u2", 2, false}, {"int32", "<i4", 4, true}, {"uint32", "<u4", 4, false}, {"int64", "<i8", 8, true}};

const IdType* type_called(std::string_view name) {
  for (const IdType& type : kTypes) {
    if (name == type.name || name == type.numpy) return &type;
  }
  return nullptr;
}

/// The value behind 'key': in the dict of a .npy header, up to the comma that ends it.
std::string_view value_of(std::string_view header, std::string_view key, char end) {
  const std::size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + key.size() + 3);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  return rest.substr(0, rest.find(end));
}

/// Where the numbers of a .npy file begin, and their type; nullptr: it is none that is read.
const IdType* read_numpy(std::string_view file, std::size_t& begin) {
  if (file.size() < 12) return nullptr;
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(file[i])); };
  const bool is_first_version = byte(6) == 1;
  const std::size_t length =
      is_first_version ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  const std::size_t from = is_first_version ? 10 : 12;
  if (length > file.size() - from) return nullptr;
  const std::string_view header = file.substr(from, length);
  std::string_view type = value_of(header, "descr", ',');
  if (type.size() < 2 || value_of(header, "fortran_order", ',') != "False") return nullptr;
  begin = from + length;
  return type_called(type.substr(1, type.size() - 2));
}

}  // namespace

Result<TokenShape> token_shape(const Model& model) {
  const std::vector<InputRange> ranges = input_ranges(model);
  TokenShape shape{.batch = 0, .seq = 0, .vocabulary = std::numeric_limits<std::int64_t>::max(), .shifts = false};
  bool has_ids = false;
  bool has_labels = false;
  std::string others;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const Value& value = model.values[static_cast<std::size_t>(model.inputs[i])];
    if (ranges[i].kind == InputRange::Kind::Positions || ranges[i].kind == InputRange::Kind::True) continue;
    const bool fits = ranges[i].kind == InputRange::Kind::Below && value.shape.size() == 2 &&
                      (shape.seq == 0 || value.shape == Shape{shape.batch, shape.seq});
    if (!fits || (value.name != kIds && value.name != kLabels)) {
      others += (others.empty() ? "" : ", ") + value.name;
      continue;
    }
    (value.name == kIds ? has_ids : has_labels) = true;
    shape.batch = value.shape[0];
    shape.seq = value.shape[1];
    shape.vocabulary = std::min(shape.vocabulary, ranges[i].below);
  }
  if (!has_ids || !has_labels || !others.empty()) {
    return failure("--tokens",
                   fmt::format("{} does not take input_ids and labels [batch, seq] alone{}.", model.name,
                               others.empty() ? "" : ", but " + others),
                   "Leave it out: data then come from the seed.");
  }
  for (const Block& block : model.blocks) {
    for (const Op& op : block.ops) {
      if (op.kind == OpKind::CrossEntropy) shape.shifts = shape.shifts || op.attributes.shift;
    }
  }
  return shape;
}

Result<std::shared_ptr<TokenFile>> TokenFile::open(const std::string& path, const std::optional<std::string>& dtype,
                                                   const TokenShape& shape) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  struct stat info {};
  if (descriptor < 0 || fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
    const std::string reason = descriptor < 0 ? std::strerror(errno) : "it is empty, or no file";
    if (descriptor >= 0) close(descriptor);
    return failure(path, fmt::format("The file cannot be read: {}.", reason));
  }
  std::shared_ptr<TokenFile> file(new TokenFile);
  file->path_ = path;
  file->shape_ = shape;
  file->mapped_bytes_ = static_cast<std::size_t>(info.st_size);
  void* mapped = mmap(nullptr, file->mapped_bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  close(descriptor);
  if (mapped == MAP_FAILED) return failure(path, fmt::format("The file cannot be mapped: {}.", std::strerror(errno)));
  file->mapped_ = static_cast<const char*>(mapped);
  const std::string_view bytes(file->mapped_, file->mapped_bytes_);
  std::size_t begin = 0;
  const IdType* type = nullptr;
  if (bytes.starts_with(kNumpy)) {
    type = read_numpy(bytes, begin);
    if (type == nullptr) {
      return failure(path, "This .npy file is not of whole numbers that are read.",
                     "Save it in C order as uint16, int32, uint32 or int64.");
    }
  } else {
    type = type_called(dtype.value_or(shape.vocabulary <= kLargestOfTwoBytes ? "uint16" : "int32"));
  }
  file->ids_ = file->mapped_ + begin;
  file->bytes_per_id_ = type->bytes;
  file->is_signed_ = type->is_signed;
  const std::int64_t count = static_cast<std::int64_t>(file->mapped_bytes_ - begin) / type->bytes;
  file->samples_ = (count - (shape.shifts ? 0 : 1)) / shape.seq;
  if (file->samples_ < 1) {
    return failure(path, fmt::format("It has {} tokens of {}, and one sample has {}.", count, type->name, shape.seq));
  }
  return file;
}

TokenFile::~TokenFile() {
  if (mapped_ != nullptr) munmap(const_cast<char*>(mapped_), mapped_bytes_);
}

std::int64_t TokenFile::id_at(std::int64_t index) const {
  const char* at = ids_ + index * bytes_per_id_;
  std::uint64_t id = 0;
  std::memcpy(&id, at, static_cast<std::size_t>(bytes_per_id_));
  if (is_signed_ && bytes_per_id_ == 4) return static_cast<std::int32_t>(id);
  return static_cast<std::int64_t>(id);
}

at::Tensor TokenFile::tokens(std::int64_t first, bool next) const {
  at::Tensor out = at::empty({shape_.batch, shape_.seq}, c10::kLong);
  auto* to = out.mutable_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < shape_.batch; ++row) {
    const std::int64_t begin = (first + row) % samples_ * shape_.seq + (next ? 1 : 0);
    for (std::int64_t i = begin; i < begin + shape_.seq; ++i) {
      const std::int64_t id = id_at(i);
      if (id < 0 || id >= shape_.vocabulary) {
        throw std::runtime_error(
            fmt::format("{}: token {} is {}, and the vocabulary has {}", path_, i, id, shape_.vocabulary));
      }
      *to++ = id;
    }
  }
  return out;
}

std::optional<at::Tensor> TokenFile::input(const std::string& name, std::int64_t first) const {
  if (name == kIds) return tokens(first, false);
  if (name == kLabels) return tokens(first, !shape_.shifts);
  return std::nullopt;
}

}  // namespace fsdp::executor

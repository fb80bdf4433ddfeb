// Sources: numpy/lib/format.py (the .npy format, versions 1 to 3).

#include "executor/memory/mapped_ids.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace fsdp::executor {

namespace {

constexpr std::string_view kNumpy = "\x93NUMPY";

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

Result<std::shared_ptr<const MappedIds>> MappedIds::open(const std::string& path, const std::string& raw_type) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  struct stat info {};
  if (descriptor < 0 || fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
    const std::string reason = descriptor < 0 ? std::strerror(errno) : "it is empty, or no file";
    if (descriptor >= 0) close(descriptor);
    return failure(path, fmt::format("The file cannot be read: {}.", reason));
  }
  const std::shared_ptr<MappedIds> file(new MappedIds);
  file->path_ = path;
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
      return failure(path, "This .npy file does not hold token ids in a supported dtype.",
                     "Save it in C order as uint16, int32, uint32 or int64.");
    }
  } else {
    type = type_called(raw_type);
  }
  file->ids_ = file->mapped_ + begin;
  file->bytes_per_id_ = type->bytes;
  file->is_signed_ = type->is_signed;
  file->type_ = type->name;
  file->count_ = static_cast<std::int64_t>(file->mapped_bytes_ - begin) / type->bytes;
  return file;
}

MappedIds::~MappedIds() {
  if (mapped_ != nullptr) munmap(const_cast<char*>(mapped_), mapped_bytes_);
}

std::int64_t MappedIds::at(std::int64_t index) const {
  const char* const from = ids_ + index * bytes_per_id_;
  std::uint64_t id = 0;
  std::memcpy(&id, from, static_cast<std::size_t>(bytes_per_id_));
  if (is_signed_ && bytes_per_id_ == 4) return static_cast<std::int32_t>(id);
  return static_cast<std::int64_t>(id);
}

}  // namespace fsdp::executor

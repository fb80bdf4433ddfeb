// Sources: numpy/lib/format.py (the .npy format, versions 1 to 3).

#include "executor/memory/id_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
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

/// The value after 'key': in the dict of a .npy header, up to its final comma.
std::string_view value_of(std::string_view header, std::string_view key, char end) {
  const std::size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + key.size() + 3);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  return rest.substr(0, rest.find(end));
}

/// The first `count` bytes, or all if there are fewer.
std::string first_bytes(int file, std::size_t count) {
  std::string bytes(count, '\0');
  const ssize_t got = pread(file, bytes.data(), count, 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

/// NumPy's headers have a few hundred bytes.
constexpr std::size_t kLongestHeader = std::size_t{1} << 16;

/// The start of the numbers in a .npy file, and their type; nullptr if the file is not supported.
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

Result<std::shared_ptr<const IdFile>> IdFile::open(const std::string& path, const std::string& raw_type) {
  const std::shared_ptr<IdFile> file(new IdFile);
  file->path_ = path;
  file->descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  struct stat info {};
  if (file->descriptor_ < 0) return failure(path, fmt::format("The file cannot be read: {}.", std::strerror(errno)));
  if (fstat(file->descriptor_, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
    return failure(path, "The file cannot be read: it is empty, or no file.");
  }
  std::size_t begin = 0;
  const std::string head = first_bytes(file->descriptor_, kLongestHeader);
  const bool is_numpy = head.starts_with(kNumpy);
  const IdType* const type = is_numpy ? read_numpy(head, begin) : type_called(raw_type);
  if (type == nullptr) {
    return failure(path, "This .npy file does not hold token ids in a supported dtype.",
                   "Save it in C order as uint16, int32, uint32 or int64.");
  }
  file->begins_ = static_cast<std::int64_t>(begin);
  file->bytes_per_id_ = type->bytes;
  file->is_signed_ = type->is_signed;
  file->type_ = type->name;
  const std::int64_t bytes = info.st_size - file->begins_;
  file->count_ = bytes / type->bytes;
  if (bytes % type->bytes != 0) {
    return failure(path,
                   fmt::format("It has {} bytes of ids, which is no whole number of {}, {} bytes each.", bytes,
                               type->name, type->bytes),
                   is_numpy ? "It was cut off: write it again."
                            : "Give its ids' type with --token-dtype, or write it again if it was cut off.");
  }
  return file;
}

IdFile::~IdFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::vector<std::int64_t> IdFile::read(std::int64_t begin, std::int64_t count) const {
  std::string bytes(static_cast<std::size_t>(count * bytes_per_id_), '\0');
  for (std::size_t done = 0; done < bytes.size();) {
    const off_t from = begins_ + begin * bytes_per_id_ + static_cast<off_t>(done);
    const ssize_t got = pread(descriptor_, bytes.data() + done, bytes.size() - done, from);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw std::runtime_error(fmt::format("{}: the file cannot be read: {}", path_, std::strerror(errno)));
    if (got == 0) {
      throw std::runtime_error(fmt::format("{}: the file has become shorter: it had {} ids, and now ends before id {}",
                                           path_, count_, begin + count));
    }
    done += static_cast<std::size_t>(got);
  }
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::uint64_t id = 0;
    std::memcpy(&id, bytes.data() + i * static_cast<std::size_t>(bytes_per_id_),
                static_cast<std::size_t>(bytes_per_id_));
    const bool extends = is_signed_ && bytes_per_id_ == 4;
    ids[i] = extends ? static_cast<std::int32_t>(id) : static_cast<std::int64_t>(id);
  }
  return ids;
}

}  // namespace fsdp::executor

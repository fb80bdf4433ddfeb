// Sources: core/formats/safetensors.cpp names those of the format. fsync(2): a new name survives a crash only if its
// folder was synced, too.

#include "executor/checkpoint/part_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/json_writer.h"
#include "core/formats/safetensors.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;

/// A new file; counts its bytes and computes their checksum. Stores the first error.
class NewPart {
 public:
  explicit NewPart(const std::string& path)
      : descriptor_(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) error_ = errno;
  }
  NewPart(const NewPart&) = delete;
  NewPart& operator=(const NewPart&) = delete;
  ~NewPart() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  /// Reserves space on the disk, so that a full one is noticed early. A file system without this function is no error.
  void reserve(std::int64_t bytes) {
    if (error_ == 0 && fallocate(descriptor_, 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
      error_ = errno;
  }
  void write(std::string_view bytes) {
    crc_ = crc32_of(crc_, bytes.data(), bytes.size());
    bytes_ += static_cast<std::int64_t>(bytes.size());
    while (error_ == 0 && !bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) error_ = errno;
      if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  void finish() {
    if (error_ == 0 && fsync(descriptor_) != 0) error_ = errno;
    if (descriptor_ >= 0 && close(std::exchange(descriptor_, -1)) != 0 && error_ == 0) error_ = errno;
  }

  int error() const { return error_; }
  std::int64_t bytes() const { return bytes_; }
  std::uint32_t crc() const { return crc_; }

 private:
  int descriptor_;
  int error_ = 0;
  std::int64_t bytes_ = 0;
  std::uint32_t crc_ = 0;
};

/// {"NAME": {"saved_offsets": [first row, 0, ...]}}: PyTorch's record of a part's place.
std::string offsets_text(const std::vector<TensorPart>& parts) {
  JsonWriter writer;
  writer.begin_object(JsonLayout::OneLine);
  for (const TensorPart& part : parts) {
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(part.rows.dim()), 0);
    if (!offsets.empty()) offsets[0] = part.first_row;
    writer.key(part.name);
    writer.begin_object(JsonLayout::OneLine);
    writer.member("saved_offsets", offsets);
    writer.end_object();
  }
  writer.end_object();
  return std::move(writer).take();
}

std::string header_of(const std::vector<TensorPart>& parts) {
  std::vector<SafetensorsEntry> entries;
  for (const TensorPart& part : parts) {
    SafetensorsEntry entry;
    entry.name = part.name;
    entry.dtype = dtype_of(part.rows.scalar_type());
    entry.shape = part.rows.sizes().vec();
    entries.push_back(std::move(entry));
  }
  const std::vector<std::pair<std::string, std::string>> metadata = {
      {"DCP_SHARDING_INFO", offsets_text(parts)}, {"DCP_VERSION", "1.0"}, {"format", "pt"}};
  return safetensors_header_text(entries, metadata);
}

}  // namespace

Result<CheckpointFile> write_part_file(const std::string& folder, const std::string& name,
                                       const std::vector<TensorPart>& parts) {
  const std::string path = folder + "/" + name;
  NewPart file(path);
  const std::string header = header_of(parts);
  auto bytes = static_cast<std::int64_t>(header.size());
  for (const TensorPart& part : parts) bytes += static_cast<std::int64_t>(part.rows.nbytes());
  file.reserve(bytes);
  file.write(header);
  for (const TensorPart& part : parts) {
    const at::Tensor flat = part.rows.reshape({-1});
    const std::int64_t most = kPieceBytes / static_cast<std::int64_t>(flat.element_size());
    for (std::int64_t done = 0; done < flat.numel() && file.error() == 0; done += most) {
      const at::Tensor piece = flat.narrow(0, done, std::min(most, flat.numel() - done)).cpu();
      file.write({static_cast<const char*>(piece.const_data_ptr()), piece.nbytes()});
    }
  }
  file.finish();
  if (file.error() != 0) {
    return failure(path, fmt::format("The file cannot be written: {}.", std::strerror(file.error())),
                   file.error() == ENOSPC ? fmt::format("It needs {} bytes.", bytes) : "");
  }
  return CheckpointFile{.name = name, .bytes = file.bytes(), .crc32 = file.crc()};
}

Result<void> sync_folder(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // EINVAL: this file system cannot sync.
  const bool is_synced = descriptor >= 0 && (fsync(descriptor) == 0 || errno == EINVAL);
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (!is_synced) return failure(folder, fmt::format("The folder cannot be written: {}.", std::strerror(error)));
  return {};
}

}  // namespace fsdp::executor

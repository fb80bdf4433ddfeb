// Source of the checksum: zlib's crc32 (https://zlib.net/manual.html), which Python has as zlib.crc32.

#include "core/formats/checkpoint_index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/json_writer.h"
#include "core/base/object_reader.h"
#include "core/plan/plan_json.h"
#include "core/plan/plan_names.h"

namespace fsdp {

namespace {

constexpr std::string_view kIndexFormat = "1.0";
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kOwnChecksum = "crc32_of_text_before";
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr IntegerRange kNaturalSize{0, std::int64_t{1} << 60};

/// A relative path without "..": nothing outside the checkpoint is read.
bool is_inside(const std::string& name) {
  const std::filesystem::path path(name);
  if (name.empty() || path.is_absolute() || name.find('\0') != std::string::npos) return false;
  return std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".." || part.empty(); });
}

}  // namespace

static bool read_json(const JsonValue& value, CheckpointFile& file, JsonErrors& errors) {
  ObjectReader object(value, errors);
  std::int64_t crc = 0;
  if (object.required("name", file.name) && !is_inside(file.name)) {
    object.fail("name", "This is not the name of a checkpoint file.");
  }
  object.required("bytes", file.bytes, kNaturalSize);
  if (object.required("crc32", crc, IntegerRange{0, 0xffffffff})) file.crc32 = static_cast<std::uint32_t>(crc);
  return object.finish(UnknownKeys::Ignore);
}

static bool read_json(const JsonValue& value, Mesh& mesh, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("replicate", mesh.dp_replicate(), IntegerRange{1, 1 << 20});
  object.required("shard", mesh.dp_shard(), IntegerRange{1, 1 << 20});
  return object.finish(UnknownKeys::Ignore);
}

/// The last member is a checksum of all text before it.
static void check_own_checksum(ObjectReader& object, const JsonDocument& document) {
  std::int64_t written = 0;
  if (!object.required(kOwnChecksum, written, IntegerRange{0, 0xffffffff})) return;
  const auto member = std::find_if(document.root.members.begin(), document.root.members.end(),
                                   [](const JsonMember& each) { return each.key == kOwnChecksum; });
  if (crc32_of(0, document.text.data(), member->key_offset) == written) return;
  object.fail(kOwnChecksum, "The index is damaged: its checksum does not match.", "Resume from another checkpoint.");
}

std::string to_json(const CheckpointIndex& index) {
  JsonWriter writer;
  writer.begin_object();
  writer.member("format_version", kIndexFormat);
  writer.member("model", index.model);
  writer.member("model_fingerprint", index.model_fingerprint);
  writer.member("step", index.step);
  writer.member("micro_batches", index.micro_batches);
  writer.member("samples", index.samples);
  writer.member("seed", index.seed);
  writer.member("learning_rate", index.hyperparameters.learning_rate);
  writer.key("training");
  write_json(writer, index.hyperparameters);
  writer.member("optimizer", name_of(kOptimizerKindTable, index.optimizer));
  writer.key("mesh");
  writer.begin_object(JsonLayout::OneLine);
  writer.member("replicate", index.mesh.dp_replicate());
  writer.member("shard", index.mesh.dp_shard());
  writer.end_object();
  writer.key("files");
  writer.begin_array();
  for (const CheckpointFile& file : index.files) {
    writer.begin_object(JsonLayout::OneLine);
    writer.member("name", file.name);
    writer.member("bytes", file.bytes);
    writer.member("crc32", static_cast<std::int64_t>(file.crc32));
    writer.end_object();
  }
  writer.end_array();
  writer.member(kOwnChecksum, 0);
  writer.end_object();
  std::string text = std::move(writer).take();
  const std::size_t key = text.rfind(json_quoted(kOwnChecksum));
  const std::size_t zero = text.find('0', key);
  return text.replace(zero, 1, std::to_string(crc32_of(0, text.data(), key)));
}

Result<CheckpointIndex> read_checkpoint_index(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / kCheckpointIndexName).string();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    const std::vector<std::int64_t> steps = checkpoint_steps(folder);
    return failure(folder, "This is not a checkpoint folder.",
                   steps.empty() ? "" : fmt::format("Did you mean \"{}/{}\"?", folder, checkpoint_name(steps.back())));
  }
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  JsonErrors errors(document);
  ObjectReader object(document.root, errors);
  CheckpointIndex index;
  std::string version;
  if (object.required("format_version", version) && !is_readable_version(version, kIndexFormat)) {
    object.fail("format_version",
                fmt::format("The format version is {}; this program reads {}.", version, kIndexFormat));
  }
  object.required("model", index.model);
  object.required("model_fingerprint", index.model_fingerprint);
  object.required("step", index.step, kNaturalSize);
  object.required("micro_batches", index.micro_batches, kNaturalSize);
  object.required("samples", index.samples, kNaturalSize);
  object.required("seed", index.seed);
  object.required("learning_rate", index.hyperparameters.learning_rate, RealRange{0, 1e300});
  // Programs without this key summed the gradients of micro-batches.
  index.hyperparameters.accumulation = Accumulation::Sum;
  object.optional("training", index.hyperparameters);
  object.required("optimizer", index.optimizer, kOptimizerKindTable);
  object.required("mesh", index.mesh);
  object.required("files", index.files);
  check_own_checksum(object, document);
  object.finish(UnknownKeys::Ignore);
  return std::move(errors).result(std::move(index));
}

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

std::vector<std::int64_t> checkpoint_steps(const std::string& folder) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    std::int64_t step = 0;
    if (!name.starts_with(kPrefix)) continue;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
    if (name != checkpoint_name(step)) continue;
    std::error_code ignored;
    if (std::filesystem::exists(entry.path() / kCheckpointIndexName, ignored)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Errors check_files(const CheckpointIndex& index, const std::string& folder) {
  Errors errors;
  for (const CheckpointFile& file : index.files) {
    const std::string path = (std::filesystem::path(folder) / file.name).string();
    struct stat info {};
    if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      errors.push_back({path, "The file is missing.", "Resume from another checkpoint."});
    } else if (info.st_size != file.bytes) {
      errors.push_back({path, fmt::format("The file has {} bytes; {} were written.", info.st_size, file.bytes),
                        "Resume from another checkpoint."});
    }
  }
  return errors;
}

Result<void> verify_file(const CheckpointFile& file, const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / file.name).string();
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0) return failure(path, fmt::format("The file cannot be read: {}.", std::strerror(errno)));
  std::vector<char> piece(kPieceBytes);
  std::uint32_t crc = 0;
  std::int64_t bytes = 0;
  int reason = 0;
  for (;;) {
    const ssize_t got = read(descriptor, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) reason = errno;
    if (got <= 0) break;
    crc = crc32_of(crc, piece.data(), static_cast<std::size_t>(got));
    bytes += got;
  }
  close(descriptor);
  if (reason != 0) return failure(path, fmt::format("The file cannot be read: {}.", std::strerror(reason)));
  if (bytes == file.bytes && crc == file.crc32) return {};
  return failure(path, fmt::format("The file is damaged: its checksum is {:08x} instead of {:08x}.", crc, file.crc32),
                 "Resume from another checkpoint.");
}

std::uint32_t crc32_of(std::uint32_t crc, const void* bytes, std::size_t count) {
  return static_cast<std::uint32_t>(crc32_z(crc, static_cast<const Bytef*>(bytes), count));
}

}  // namespace fsdp

// The bytes of a file are [8, header) and then one tensor after the other, without gaps. So a header that matches the
// size of its file locates everything, and a truncated file is noticed before any of it is used.
//
// A part of a tensor has its offset under the key DCP_SHARDING_INFO of the metadata: a JSON text of its own, {"NAME":
// {"saved_offsets": [rows, 0, ...]}}.
//
// Sources: https://huggingface.co/docs/safetensors (the format) and safetensors/src/tensor.rs (the errors of its
// reader); torch/distributed/checkpoint/_hf_utils.py and filesystem.py, torch 2.11, for parts.
//
// Not modeled: types of less than a byte; only the order of their bytes is checked.

#include "core/formats/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/file_descriptor.h"
#include "core/base/json_writer.h"
#include "core/base/object_reader.h"

namespace fsdp {

namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 60;  // The sum of two fits 64 bits.
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kParts = "DCP_SHARDING_INFO";

constexpr EnumName<Dtype> kDtypeNames[] = {
    {Dtype::Float64, "F64"}, {Dtype::Float32, "F32"}, {Dtype::BFloat16, "BF16"}, {Dtype::Float16, "F16"},
    {Dtype::Int64, "I64"},   {Dtype::Int32, "I32"},   {Dtype::Int16, "I16"},     {Dtype::Int8, "I8"},
    {Dtype::UInt8, "U8"},    {Dtype::Bool, "BOOL"},
};
constexpr EnumTable<Dtype> kTable{"dtype", kDtypeNames};
constexpr std::array<std::string_view, 12> kOthers = {"U16",         "U32",     "U64",     "C64",
                                                      "F8_E4M3",     "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ",
                                                      "F8_E5M2FNUZ", "F4",      "F6_E2M3", "F6_E3M2"};

bool read_dtype(ObjectReader& object, SafetensorsEntry& entry) {
  if (!object.required("dtype", entry.dtype_name)) return false;
  for (const auto& each : kDtypeNames) {
    if (each.name == entry.dtype_name) entry.dtype = each.value;
  }
  if (entry.dtype || std::find(kOthers.begin(), kOthers.end(), entry.dtype_name) != kOthers.end()) return true;
  return object.fail("dtype", fmt::format("Unknown dtype {}.", json_quoted(entry.dtype_name)));
}

bool read_entry(const JsonValue& value, SafetensorsEntry& entry, std::int64_t data_begin, JsonErrors& errors) {
  ObjectReader object(value, errors);
  const bool has_dtype = read_dtype(object, entry);
  std::vector<std::int64_t> offsets;
  const IntegerRange not_negative{0, kMost};
  const bool has_shape = object.required("shape", entry.shape, not_negative);
  if (!object.required("data_offsets", offsets, not_negative) || !has_dtype || !has_shape) return object.finish();
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    return object.fail("data_offsets", "Expected the first byte and the byte after the last.");
  }
  if (entry.dtype) {
    const auto bytes = checked_bytes(entry.shape, *entry.dtype);
    if (bytes != offsets[1] - offsets[0]) {
      return object.fail("data_offsets", fmt::format("The tensor has {} bytes here, and its shape and dtype need {}.",
                                                     offsets[1] - offsets[0],
                                                     bytes ? std::to_string(*bytes) : "more than there can be"));
    }
  }
  entry.begin = data_begin + offsets[0];
  entry.end = data_begin + offsets[1];
  return object.finish();
}

void read_metadata(const JsonValue& value, SafetensorsHeader& header, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Object, "an object", errors)) return;
  for (const JsonMember& member : value.members) {
    std::string text;
    if (read_json(member.value, text, errors)) header.metadata.emplace_back(member.key, std::move(text));
  }
}

/// Every byte after the header belongs to one tensor.
void check_bytes(SafetensorsHeader& header, std::int64_t data_begin, const JsonDocument& document, JsonErrors& errors) {
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::int64_t next = data_begin;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != next) {
      errors.add(document.root, fmt::format("The bytes of {} begin at {}, and {} was expected.",
                                            json_quoted(entry.name), entry.begin - data_begin, next - data_begin));
      return;
    }
    next = entry.end;
  }
  if (next != header.file_bytes) {
    errors.add(document.root,
               fmt::format("The file has {} bytes, and its header describes {}.", header.file_bytes, next),
               next > header.file_bytes ? "It was truncated: get it again." : "");
  }
}

Result<void> read_parts(SafetensorsHeader& header) {
  const auto parts = std::find_if(header.metadata.begin(), header.metadata.end(),
                                  [](const auto& each) { return each.first == kParts; });
  if (parts == header.metadata.end()) return {};
  FSDP_TRY(const JsonDocument document, parse_json(parts->second, fmt::format("{}: {}", header.path, kParts)));
  JsonErrors errors(document);
  ObjectReader object(document.root, errors);
  for (SafetensorsEntry& entry : header.entries) {
    const JsonValue* value = object.required_value(entry.name);
    if (value == nullptr) continue;
    ObjectReader part(*value, errors);
    Shape offsets;
    if (part.required("saved_offsets", offsets, IntegerRange{0, kMost})) {
      const bool fits = offsets.size() == entry.shape.size();
      const bool is_rows = std::all_of(offsets.begin() + (offsets.empty() ? 0 : 1), offsets.end(),
                                       [](std::int64_t offset) { return offset == 0; });
      if (!fits) part.fail("saved_offsets", fmt::format("The tensor has {} dimensions.", entry.shape.size()));
      if (fits && !is_rows) {
        part.fail("saved_offsets", "The tensor is sharded along another dimension than 0.",
                  "Consolidate the files first.");
      }
      if (fits && is_rows) entry.saved_offsets = std::move(offsets);
    }
    part.finish(UnknownKeys::Ignore);
  }
  object.finish(UnknownKeys::Ignore);
  if (!errors.empty()) return tl::unexpected(std::move(errors).take());
  return {};
}

bool read_all(int file, char* out, std::int64_t bytes) {
  while (bytes > 0) {
    const ssize_t got = read(file, out, static_cast<std::size_t>(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out += got;
    bytes -= got;
  }
  return true;
}

}  // namespace

std::optional<std::int64_t> checked_bytes(const Shape& shape, Dtype dtype) {
  std::int64_t bytes = size_of(dtype).count();
  bool is_empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0 || size > kMost) return std::nullopt;
    is_empty = is_empty || size == 0;
  }
  if (is_empty) return 0;
  for (const std::int64_t size : shape) {
    if (bytes > kMost / size) return std::nullopt;
    bytes *= size;
  }
  return bytes;
}

std::string_view safetensors_name(Dtype dtype) {
  return name_of(kTable, dtype);
}

Result<SafetensorsHeader> parse_safetensors_header(std::string text, const std::string& path, std::int64_t file_bytes) {
  const std::int64_t data_begin = kSafetensorsLengthBytes + static_cast<std::int64_t>(text.size());
  FSDP_TRY(const JsonDocument document, parse_json(std::move(text), path));
  JsonErrors errors(document);
  SafetensorsHeader header{.path = path, .file_bytes = file_bytes, .entries = {}};
  if (expect_type(document.root, JsonType::Object, "an object of tensors", errors)) {
    for (const JsonMember& member : document.root.members) {
      if (member.key == kMetadata) {
        read_metadata(member.value, header, errors);
        continue;
      }
      SafetensorsEntry entry;
      entry.name = member.key;
      if (read_entry(member.value, entry, data_begin, errors)) header.entries.push_back(std::move(entry));
    }
    if (errors.empty()) check_bytes(header, data_begin, document, errors);
  }
  FSDP_TRY(header, std::move(errors).result(std::move(header)));
  const Result<void> parts = read_parts(header);
  if (!parts) return tl::unexpected(parts.error());
  return header;
}

Result<SafetensorsHeader> read_safetensors_header(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  struct stat info {};
  if (file.number() < 0 || fstat(file.number(), &info) != 0) {
    return failure(path, fmt::format("The file cannot be read: {}.", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) return failure(path, "This is not a file.", "Name a file of tensors.");
  std::array<char, kSafetensorsLengthBytes> length_bytes{};
  if (!read_all(file.number(), length_bytes.data(), kSafetensorsLengthBytes)) {
    return failure(path, fmt::format("The file has {} bytes, too few for a safetensors file.", info.st_size));
  }
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes.size(); i-- > 0;) length = length << 8 | static_cast<std::uint8_t>(length_bytes[i]);
  const std::int64_t most = std::min<std::int64_t>(info.st_size - kSafetensorsLengthBytes, kLongestSafetensorsHeader);
  if (length > static_cast<std::uint64_t>(most)) {
    return failure(path, fmt::format("Its header would have {} bytes, of {} that there may be.", length, most),
                   "It was truncated, or it is not a safetensors file.");
  }
  std::string text(length, '\0');
  if (!read_all(file.number(), text.data(), static_cast<std::int64_t>(length))) {
    return failure(path, "The header cannot be read.");
  }
  return parse_safetensors_header(std::move(text), path, info.st_size);
}

std::string safetensors_header_text(std::span<const SafetensorsEntry> entries,
                                    std::span<const std::pair<std::string, std::string>> metadata) {
  JsonWriter writer;
  writer.begin_object();
  if (!metadata.empty()) {
    writer.key(kMetadata);
    writer.begin_object(JsonLayout::OneLine);
    for (const auto& [key, value] : metadata) writer.member(key, value);
    writer.end_object();
  }
  std::int64_t begin = 0;
  for (const SafetensorsEntry& entry : entries) {
    const std::int64_t bytes = checked_bytes(entry.shape, *entry.dtype).value();
    writer.key(entry.name);
    writer.begin_object(JsonLayout::OneLine);
    writer.member("dtype", safetensors_name(*entry.dtype));
    writer.member("shape", entry.shape);
    writer.member("data_offsets", std::vector<std::int64_t>{begin, begin + bytes});
    writer.end_object();
    begin += bytes;
  }
  writer.end_object();
  std::string text = std::move(writer).take();
  while (text.size() % kSafetensorsLengthBytes != 0) text += ' ';
  std::string length(kSafetensorsLengthBytes, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

}  // namespace fsdp

// Rows of a tensor are contiguous, and so are their elements: a part that was cut along dimension 0 is a range of flat
// elements, and so is the shard of one rank of FSDP2. A reader intersects the two kinds of ranges.
//
// Sources: https://huggingface.co/docs/transformers/big_models (the index: {"weight_map": {NAME: FILE}}).

#include "core/formats/stored_tensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "core/base/files.h"
#include "core/base/json_writer.h"
#include "core/base/object_reader.h"
#include "core/formats/safetensors.h"

namespace fsdp {

namespace {

constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::string_view kIndexEnding = ".index.json";
constexpr std::string_view kModelIndex = "model.safetensors.index.json";
constexpr std::string_view kModelFile = "model.safetensors";

/// An entry of an index: the file of a tensor.
struct Promise {
  std::string index;
  std::string tensor;
  std::string file;
};

struct Sources {
  std::vector<std::string> files;
  std::vector<Promise> promises;
};

void add_file(const std::string& file, Sources& sources) {
  if (std::find(sources.files.begin(), sources.files.end(), file) == sources.files.end()) sources.files.push_back(file);
}

void add_index(const std::string& path, Sources& sources, Errors& errors) {
  const Result<JsonDocument> document = read_json_file(path);
  if (!document) return append(errors, document.error());
  JsonErrors found(*document);
  ObjectReader object(document->root, found);
  const JsonValue* map = object.required_value("weight_map");
  std::set<std::string> files;
  if (map != nullptr && expect_type(*map, JsonType::Object, "an object of names and files", found)) {
    for (const JsonMember& member : map->members) {
      std::string file;
      if (!read_json(member.value, file, found)) continue;
      if (file.empty() || file.find('/') != std::string::npos || file.find('\0') != std::string::npos) {
        found.add(member.value, "This is not the name of a file in the folder of the index.");
        continue;
      }
      const std::string beside = (std::filesystem::path(path).parent_path() / file).string();
      files.insert(beside);
      sources.promises.push_back({path, member.key, beside});
    }
  }
  object.finish(UnknownKeys::Ignore);
  append(errors, std::move(found).take());
  std::error_code ignored;
  for (const std::string& file : files) {
    if (std::filesystem::is_regular_file(file, ignored)) {
      add_file(file, sources);
    } else {
      errors.push_back({file, fmt::format("The file is missing, and {} names it.", path), "Get it again."});
    }
  }
}

void add_folder(const std::string& path, Sources& sources, Errors& errors) {
  const std::filesystem::path folder(path);
  std::error_code error;
  if (std::filesystem::exists(folder / kModelIndex, error)) {
    return add_index((folder / kModelIndex).string(), sources, errors);
  }
  if (std::filesystem::exists(folder / kModelFile, error)) return add_file((folder / kModelFile).string(), sources);
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kSafetensors) && !name.starts_with('.')) found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  if (found.empty()) {
    errors.push_back({path,
                      error ? fmt::format("The folder cannot be read: {}.", error.message())
                            : "The folder has no safetensors files.",
                      ""});
  }
  for (const std::string& file : found) add_file(file, sources);
}

Sources find_sources(const std::vector<std::string>& paths, Errors& errors) {
  Sources sources;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
      add_folder(path, sources, errors);
    } else if (path.ends_with(kIndexEnding)) {
      add_index(path, sources, errors);
    } else {
      add_file(path, sources);
    }
  }
  return sources;
}

/// Parts of a tensor in the order of reading, before they are joined.
struct Found {
  Dtype dtype = Dtype::Float32;
  std::vector<std::pair<StoredPart, const SafetensorsEntry*>> parts;
};

std::int64_t elements_of(const Shape& shape) {
  return *checked_bytes(shape, Dtype::UInt8);
}

/// The shape of the whole tensor, and its parts in order.
Result<StoredTensor> put_together(const std::string& name, const Found& found, const std::vector<std::string>& files) {
  const auto where = [&](std::size_t i) { return files[found.parts[i].first.file]; };
  StoredTensor tensor{.name = name, .dtype = *found.parts[0].second->dtype, .shape = {}, .parts = {}};
  tensor.shape = found.parts[0].second->shape;
  for (std::size_t i = 0; i < found.parts.size(); ++i) {
    const SafetensorsEntry& entry = *found.parts[i].second;
    const bool is_alike = entry.dtype == tensor.dtype && entry.shape.size() == tensor.shape.size() &&
                          std::equal(entry.shape.begin() + (entry.shape.empty() ? 0 : 1), entry.shape.end(),
                                     tensor.shape.begin() + (tensor.shape.empty() ? 0 : 1));
    if (!is_alike)
      return failure(where(i),
                     fmt::format("{} has a different dtype or shape than in {}.", json_quoted(name), where(0)));
    if (!tensor.shape.empty()) {
      const std::int64_t first = entry.saved_offsets ? entry.saved_offsets->front() : 0;
      tensor.shape[0] = std::max(tensor.shape[0], first + entry.shape[0]);
    }
  }
  if (!checked_bytes(tensor.shape, tensor.dtype)) {
    return failure(where(0), fmt::format("{} would have more bytes than there can be.", json_quoted(name)));
  }
  std::vector<StoredPart> parts;
  for (const auto& [part, entry] : found.parts) {
    StoredPart each = part;
    each.count = elements_of(entry->shape);
    const std::int64_t row =
        tensor.shape.empty() || tensor.shape[0] == 0 ? 1 : elements_of(tensor.shape) / tensor.shape[0];
    each.first = entry->saved_offsets && !tensor.shape.empty() ? entry->saved_offsets->front() * row : 0;
    if (each.count > 0) parts.push_back(each);
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::int64_t next = 0;
  for (const StoredPart& part : parts) {
    if (part.first != next) {
      const std::string& file = files[part.file];
      return failure(file,
                     part.first < next
                         ? fmt::format("{} is there twice.", json_quoted(name))
                         : fmt::format("No file has the rows of {} before those of this file.", json_quoted(name)),
                     part.first < next ? "Name the files of one checkpoint." : "A file of the checkpoint is missing.");
    }
    next += part.count;
  }
  tensor.parts = std::move(parts);
  return tensor;
}

void check_promises(const Sources& sources, const std::map<std::string, Found>& found, Errors& errors) {
  for (const Promise& promise : sources.promises) {
    const auto tensor = found.find(promise.tensor);
    const bool is_there = tensor != found.end() &&
                          std::any_of(tensor->second.parts.begin(), tensor->second.parts.end(),
                                      [&](const auto& part) { return sources.files[part.first.file] == promise.file; });
    if (is_there) continue;
    errors.push_back({promise.file,
                      fmt::format("It has no tensor {}, but {} lists it.", json_quoted(promise.tensor), promise.index),
                      "Get both again."});
  }
}

}  // namespace

std::int64_t StoredTensors::bytes() const {
  std::int64_t bytes = 0;
  for (const StoredTensor& tensor : tensors) bytes += *checked_bytes(tensor.shape, tensor.dtype);
  return bytes;
}

const StoredTensor* StoredTensors::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const StoredTensor& tensor, std::string_view given) { return tensor.name < given; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

Result<std::vector<std::string>> safetensors_files(const std::vector<std::string>& paths) {
  Errors errors;
  Sources sources = find_sources(paths, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return std::move(sources.files);
}

Result<StoredTensors> read_stored_tensors(const std::vector<std::string>& paths) {
  Errors errors;
  const Sources sources = find_sources(paths, errors);
  std::vector<SafetensorsHeader> headers(sources.files.size());
  std::map<std::string, Found> found;
  for (std::size_t file = 0; file < sources.files.size(); ++file) {
    Result<SafetensorsHeader> header = read_safetensors_header(sources.files[file]);
    if (!header) {
      append(errors, header.error());
      continue;
    }
    headers[file] = *std::move(header);
    for (const SafetensorsEntry& entry : headers[file].entries) {
      if (!entry.dtype) {
        errors.push_back(
            {sources.files[file],
             fmt::format("{} has dtype {}, which is not supported.", json_quoted(entry.name), entry.dtype_name), ""});
        continue;
      }
      found[entry.name].parts.emplace_back(StoredPart{.file = static_cast<int>(file), .offset = entry.begin}, &entry);
    }
  }
  if (errors.empty()) check_promises(sources, found, errors);
  StoredTensors stored{.files = sources.files, .tensors = {}};
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  for (const auto& [name, parts] : found) {
    Result<StoredTensor> tensor = put_together(name, parts, stored.files);
    if (!tensor) {
      append(errors, tensor.error());
      continue;
    }
    stored.tensors.push_back(*std::move(tensor));
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return stored;
}

StoredReader::~StoredReader() {
  if (descriptor_ >= 0) close(descriptor_);
}

Result<void> StoredReader::open(int file) {
  if (file == file_) return {};
  if (descriptor_ >= 0) close(descriptor_);
  const std::string& path = tensors_.files[file];
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  file_ = descriptor_ < 0 ? -1 : file;
  if (descriptor_ < 0) return failure(path, fmt::format("The file cannot be read: {}.", std::strerror(errno)));
  return {};
}

Result<void> StoredReader::read(const StoredTensor& tensor, std::int64_t first, std::int64_t count, void* out) {
  const std::int64_t size = size_of(tensor.dtype).count();
  char* to = static_cast<char*>(out);
  auto part = std::partition_point(tensor.parts.begin(), tensor.parts.end(),
                                   [&](const StoredPart& each) { return each.first + each.count <= first; });
  for (; count > 0; ++part) {
    const std::int64_t skipped = first - part->first;
    const std::int64_t taken = std::min(count, part->count - skipped);
    const Result<void> opened = open(part->file);
    if (!opened) return opened;
    std::int64_t offset = part->offset + skipped * size;
    for (std::int64_t left = taken * size; left > 0;) {
      const ssize_t got = pread(descriptor_, to, static_cast<std::size_t>(left), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        const std::string reason = got < 0 ? std::strerror(errno) : "it has become shorter";
        return failure(tensors_.files[part->file], fmt::format("The file cannot be read: {}.", reason));
      }
      to += got;
      offset += got;
      left -= got;
      bytes_read_ += got;
    }
    first += taken;
    count -= taken;
  }
  return {};
}

}  // namespace fsdp

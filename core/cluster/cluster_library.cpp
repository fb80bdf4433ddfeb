#include "core/cluster/cluster_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>

#include "core/base/json_document.h"
#include "core/base/json_writer.h"
#include "core/base/nearest.h"
#include "core/cluster/cluster_reader.h"

namespace fsdp {

namespace {

/// The name for comparison: lower case, no blanks, no separators, no maker.
std::string device_key(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  constexpr std::string_view kMaker = "nvidia";
  if (result.starts_with(kMaker)) result.erase(0, kMaker.size());
  return result;
}

template <class Named>
bool has_name(const Named& item, const std::string& wanted) {
  if (device_key(item.name) == wanted) return true;
  return std::any_of(item.aliases.begin(), item.aliases.end(),
                     [&](const std::string& alias) { return device_key(alias) == wanted; });
}

/// The maker of a device_key name if it is clearly not NVIDIA; otherwise "".
std::string_view maker_of_others(std::string_view name) {
  struct Beginning {
    std::string_view name, maker;
  };
  constexpr Beginning kOthers[] = {
      {"mi2", "AMD"},    {"mi3", "AMD"},    {"mi4", "AMD"},         {"amd", "AMD"},       {"instinct", "AMD"},
      {"rx7", "AMD"},    {"radeon", "AMD"}, {"gaudi", "Intel"},     {"intel", "Intel"},   {"ponte", "Intel"},
      {"tpu", "Google"}, {"trn", "Amazon"}, {"trainium", "Amazon"}, {"ascend", "Huawei"}, {"mtia", "Meta"},
  };
  for (const Beginning& other : kOthers) {
    if (name.starts_with(other.name)) return other.maker;
  }
  return {};
}

/// Cards that users own but the library lacks, by device_key, with the memory on the label: the name with the nearest
/// letters would be another card.
struct MissingCard {
  std::string_view key, name, memory;
};
constexpr MissingCard kMissingCards[] = {
    {"rtx6000", "RTX 6000 (Ada)", "48G"},
    {"rtx6000ada", "RTX 6000 Ada", "48G"},
    {"rtxpro6000", "RTX PRO 6000", "96G"},
    {"rtxpro6000blackwell", "RTX PRO 6000", "96G"},
    {"a10", "A10", "24G"},
    {"a30", "A30", "24G"},
    {"a40", "A40", "48G"},
    {"l40", "L40", "48G"},
    {"a16", "A16", "16G"},
    {"a800", "A800", "80G"},
    {"h800", "H800", "80G"},
    {"h20", "H20", "96G"},
    {"rtx5000ada", "RTX 5000 Ada", "32G"},
    {"rtxa5000", "RTX A5000", "24G"},
    {"a5000", "RTX A5000", "24G"},
    {"rtxa4000", "RTX A4000", "16G"},
    {"a4000", "RTX A4000", "16G"},
};

/// The one with this name; `nullptr` and the hint of the error if there is none.
template <class Named>
const Named* find_named(std::string_view name, std::span<const Named> items, std::string& hint) {
  const std::string wanted = device_key(name);
  for (const Named& item : items) {
    if (!wanted.empty() && has_name(item, wanted)) return &item;
  }
  // A slip in an alias suggests the alias; otherwise a user of "p4d" would get a longer name.
  std::vector<std::string_view> all;
  std::vector<std::string_view> names;
  for (const Named& item : items) {
    names.push_back(item.name);
    all.push_back(item.name);
    all.insert(all.end(), item.aliases.begin(), item.aliases.end());
  }
  const std::optional<std::string> nearest = nearest_name(name, all);
  hint = nearest ? fmt::format("Did you mean \"{}\"?", *nearest) : suggest_name("", names);
  return nullptr;
}

/// The JSON files of a folder, sorted by name.
Result<std::vector<std::string>> json_files(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".json") paths.push_back(entry->path().string());
  }
  if (error) {
    return failure(folder, fmt::format("The folder of the clusters cannot be read: {}.", error.message()),
                   "It is installed next to the program, as share/fsdp-plan/model_specs/clusters.");
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Reports names and aliases that two of the library share.
template <class Named>
void check_names(const std::vector<Named>& items, const std::string& folder, Errors& errors) {
  std::map<std::string, const Named*> owners;
  for (const Named& item : items) {
    std::vector<std::string> names = item.aliases;
    names.push_back(item.name);
    for (const std::string& name : names) {
      const auto [owner, is_new] = owners.emplace(device_key(name), &item);
      if (is_new || owner->second == &item) continue;
      errors.push_back({folder,
                        fmt::format("\"{}\" and \"{}\" are both called \"{}\".", owner->second->name, item.name, name),
                        "Take the alias from one of them."});
    }
  }
}

template <class Read, class Item>
void read_all(const std::vector<std::string>& paths, std::vector<Item>& items, Errors& errors, Read read) {
  for (const std::string& path : paths) {
    Result<JsonDocument> document = read_json_file(path);
    Result<Item> item = document ? read(*document) : tl::unexpected(document.error());
    if (item) {
      items.push_back(std::move(*item));
    } else {
      append(errors, item.error());
    }
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.name < b.name; });
}

Result<Measurements> read_measurements_of(const JsonDocument& document, const std::vector<Gpu>& gpus) {
  FSDP_TRY(Measurements found, read_measurements(document));
  Errors errors;
  for (const std::string& name : found.gpus) {
    const Result<Gpu> gpu = find_gpu(name, gpus, document.name);
    if (!gpu) append(errors, gpu.error());
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return found;
}

/// Adds to each card the tables that name it.
void read_measured(const std::string& folder, std::vector<Gpu>& gpus, Errors& errors) {
  std::error_code missing;
  if (!std::filesystem::is_directory(folder, missing)) return;
  const Result<std::vector<std::string>> paths = json_files(folder);
  if (!paths) return append(errors, paths.error());
  for (const std::string& path : *paths) {
    const Result<JsonDocument> document = read_json_file(path);
    Result<Measurements> found = document ? read_measurements_of(*document, gpus) : tl::unexpected(document.error());
    if (!found) {
      append(errors, found.error());
      continue;
    }
    const MeasuredCard tables(std::make_shared<const Measurements>(*std::move(found)));
    for (Gpu& gpu : gpus) {
      const auto is_this = [&](const std::string& name) { return has_name(gpu, device_key(name)); };
      if (std::any_of(tables.get()->gpus.begin(), tables.get()->gpus.end(), is_this)) gpu.measured = tables;
    }
  }
}

}  // namespace

Result<ClusterLibrary> read_cluster_library(const std::string& folder) {
  FSDP_TRY(const std::vector<std::string> gpu_paths, json_files(folder + "/gpus"));
  FSDP_TRY(const std::vector<std::string> cluster_paths, json_files(folder));
  ClusterLibrary library;
  Errors errors;
  read_all(gpu_paths, library.gpus, errors, read_gpu);
  // The names of cards with errors are unknown.
  if (errors.empty()) read_measured(folder + "/measured", library.gpus, errors);
  read_all(cluster_paths, library.clusters, errors,
           [&](const JsonDocument& document) { return read_cluster(document, library.gpus); });
  check_names(library.gpus, folder, errors);
  check_names(library.clusters, folder, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return library;
}

void take_measurements(Gpu& gpu, std::span<const Gpu> gpus) {
  for (const Gpu& shipped : gpus) {
    if (shipped.name == gpu.name) gpu.measured = shipped.measured;
  }
}

bool is_same_gpu_name(std::string_view a, std::string_view b) {
  return device_key(a) == device_key(b);
}

bool is_beginning_of_name(std::string_view beginning, std::string_view name) {
  return device_key(name).starts_with(device_key(beginning));
}

Result<Gpu> find_gpu(std::string_view name, std::span<const Gpu> gpus, std::string_view where) {
  std::string hint;
  if (const std::string_view maker = maker_of_others(device_key(name)); !maker.empty()) {
    return failure(
        std::string(where), fmt::format("{} is a device of {}, which is not modeled.", json_quoted(name), maker),
        "Memory, kernels and collectives are those of CUDA and NCCL on GPUs of NVIDIA: fsdp-plan gpus lists them.");
  }
  const Gpu* gpu = find_named(name, gpus, hint);
  if (gpu == nullptr) {
    for (const MissingCard& card : kMissingCards) {
      if (card.key != device_key(name)) continue;
      return failure(
          std::string(where), fmt::format("{} is not in the library.", card.name),
          fmt::format("Write --mem {} in its place: a known GPU of about that memory stands in, and is named. "
                      "fsdp-plan gpus lists those that are known.",
                      card.memory));
    }
  }
  if (gpu == nullptr) return failure(std::string(where), fmt::format("Unknown GPU {}.", json_quoted(name)), hint);
  return *gpu;
}

Result<Cluster> find_cluster(std::string_view name, std::span<const Cluster> clusters, std::string_view where) {
  std::string hint;
  const Cluster* cluster = find_named(name, clusters, hint);
  if (cluster == nullptr)
    return failure(std::string(where), fmt::format("Unknown cluster {}.", json_quoted(name)), hint);
  return *cluster;
}

}  // namespace fsdp

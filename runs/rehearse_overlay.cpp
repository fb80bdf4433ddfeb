// The layout of an overlay, as overlay/place.h reads it: files/ has written files under their whole path; removed/ has
// an empty file for each removed path, whose name ends in the byte 1; copies/ has unfinished copies; tmp/ is TMPDIR;
// the byte in `used` records whether anything was written yet.

#include "runs/rehearse_overlay.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "core/base/environment.h"
#include "core/base/parse_units.h"
#include "text/figures.h"

namespace fsdp::runs {

namespace {

constexpr std::size_t kMostNames = 4;
constexpr char kMark = '\x01';

/// Resolves links, because the library compares resolved paths.
std::string canonical(const std::string& path) {
  std::error_code error;
  const std::filesystem::path result = std::filesystem::canonical(path, error);
  return error ? path : result.string();
}

/// The compiled kernels of Triton and Inductor for the stub: python/fsdp_rehearsal/compilers.py. Empty if there is no
/// place for it.
std::string cache_folder() {
  const std::string given = environment_variable("XDG_CACHE_HOME");
  const std::string home = environment_variable("HOME");
  if (given.empty() && home.empty()) return "";
  return (given.empty() ? home + "/.cache" : given) + "/fsdp-plan";
}

/// "best.pt", "~/models/x", "/data/y".
std::string shown_path(const std::string& path) {
  std::error_code ignored;
  const std::string folder = std::filesystem::current_path(ignored).string() + "/";
  const std::string home = environment_variable("HOME") + "/";
  if (path.starts_with(folder)) return path.substr(folder.size());
  if (home.size() > 2 && path.starts_with(home)) return "~/" + path.substr(home.size());
  return path;
}

bool is_cache(const std::string& path) {
  return path.find("/__pycache__/") != std::string::npos || path.find("/.cache/") != std::string::npos ||
         path.find("/.triton/") != std::string::npos || path.ends_with(".pyc");
}

struct Found {
  std::string path;  // As the script saw it.
  std::uintmax_t bytes = 0;
};

/// Files below a folder, by path.
std::vector<Found> files_below(const std::string& folder) {
  std::vector<Found> found;
  std::error_code error;
  using Entries = std::filesystem::recursive_directory_iterator;
  for (Entries entry(folder, std::filesystem::directory_options::skip_permission_denied, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const std::filesystem::file_status status = entry->symlink_status(ignored);
    if (!std::filesystem::is_regular_file(status) && !std::filesystem::is_symlink(status)) continue;
    const bool is_file = std::filesystem::is_regular_file(status);
    found.push_back({entry->path().string().substr(folder.size()), is_file ? entry->file_size(ignored) : 0});
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.path < b.path; });
  return found;
}

std::string names_of(const std::vector<Found>& files) {
  std::string text;
  for (std::size_t i = 0; i < std::min(files.size(), kMostNames); ++i) {
    text += (i == 0 ? "" : ", ") + shown_path(files[i].path);
  }
  if (files.size() > kMostNames) text += fmt::format(" and {} more", files.size() - kMostNames);
  return text;
}

/// Removed paths that existed before; of a removed folder only the folder itself.
std::vector<Found> gone_from(const std::string& folder) {
  std::vector<Found> gone;
  std::set<std::string> marked;
  for (const Found& mark : files_below(folder + "/removed")) {
    if (mark.path.ends_with(kMark)) marked.insert(mark.path.substr(0, mark.path.size() - 1));
  }
  for (const std::string& path : marked) {
    bool is_inside = false;
    for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      is_inside = is_inside || marked.contains(path.substr(0, slash));
    }
    struct stat status {};
    // A folder that was made again lacks its former contents.
    const bool is_replaced = lstat((folder + "/files" + path).c_str(), &status) == 0 && !S_ISDIR(status.st_mode);
    if (!is_inside && !is_replaced && !is_cache(path)) gone.push_back({path, 0});
  }
  return gone;
}

std::vector<RehearsalWarning> describe_redirected(const std::string& folder) {
  std::vector<RehearsalWarning> result;
  std::vector<Found> written = files_below(folder + "/files");
  std::erase_if(written, [](const Found& file) { return is_cache(file.path); });
  if (!written.empty()) {
    std::uintmax_t bytes = 0;
    for (const Found& file : written) bytes += file.bytes;
    result.push_back({"writes", fmt::format("{} ({}): {}. Not kept: a rehearsal computes no values.",
                                            text::counted(static_cast<std::int64_t>(written.size()), "file"),
                                            format_bytes(Bytes(static_cast<std::int64_t>(bytes))), names_of(written))});
  }
  const std::vector<Found> gone = gone_from(folder);
  if (!gone.empty()) {
    result.push_back({"writes", fmt::format("It removed or moved {}, which {} still there.", names_of(gone),
                                            gone.size() == 1 ? "is" : "are")});
  }
  return result;
}

std::vector<RehearsalWarning> describe_allowed(const std::string& folder) {
  std::set<std::string> paths;
  std::ifstream log(folder + "/log");
  for (std::string line; std::getline(log, line);) {
    if (!is_cache(line)) paths.insert(line);
  }
  if (paths.empty()) return {};
  std::vector<Found> changed;
  for (const std::string& path : paths) changed.push_back({path, 0});
  return {{"allowed_writes",
           fmt::format("--allow-writes: the script wrote, moved or removed {} on your disk: {}. A "
                       "rehearsal computes no values, so these files are meaningless.",
                       text::counted(static_cast<std::int64_t>(paths.size()), "path"), names_of(changed))}};
}

}  // namespace

Writes writes_of(const RehearsalSettings& settings) {
  std::error_code ignored;
  if (!settings.allow_writes) return Writes::Redirected;
  return std::filesystem::exists(settings.places.overlay, ignored) ? Writes::Allowed : Writes::Unwatched;
}

Result<void> make_overlay(const std::string& folder) {
  constexpr const char* kHint = "Set TMPDIR to a folder with room: what the script writes goes there until the end.";
  const auto refuse = [&] {
    return failure(folder, fmt::format("It cannot be made: {}.", std::strerror(errno)), kHint);
  };
  for (const char* part : {"", "/files", "/removed", "/copies", "/tmp"}) {
    if (mkdir((folder + part).c_str(), 0700) != 0) return refuse();
  }
  std::ofstream used(folder + "/used", std::ios::binary);
  used.put('\0');
  used.close();
  return used ? Result<void>() : refuse();
}

namespace {

/// True for /dev folders that contain the user's files. overlay/settings.cpp has the same.
bool is_of_files(const std::filesystem::path& device) {
  const std::string name = device.filename().string();
  return name == "shm" || name == "mqueue" || name == "hugepages";
}

/// Folders that a script may really write to.
std::vector<std::string> free_folders(const std::string& session) {
  std::vector<std::string> folders = {canonical(session)};
  const std::string cache = cache_folder();
  std::error_code ignored;
  if (!cache.empty()) std::filesystem::create_directories(cache, ignored);
  if (!cache.empty() && std::filesystem::is_directory(cache, ignored)) folders.push_back(canonical(cache));
  return folders;
}

}  // namespace

std::vector<std::string> writable_paths(const std::string& session) {
  std::vector<std::string> paths = free_folders(session);
  paths.emplace_back("/proc");
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/dev", error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const std::filesystem::file_status status = entry->symlink_status(ignored);
    const bool is_link = std::filesystem::is_symlink(status);
    if (is_link || std::filesystem::is_block_file(status) || std::filesystem::is_regular_file(status)) continue;
    if (!is_of_files(entry->path())) paths.push_back(entry->path().string());
  }
  return paths;
}

std::vector<std::pair<std::string, std::string>> overlay_environment(const RehearsalSettings& settings,
                                                                     const std::string& folder,
                                                                     const std::string& session) {
  const Writes writes = writes_of(settings);
  if (writes == Writes::Unwatched) return {};
  std::string free;
  for (const std::string& each : free_folders(session)) free += (free.empty() ? "" : "\n") + each;
  const std::string preload = environment_variable("LD_PRELOAD");
  const std::string place = canonical(folder);
  std::vector<std::pair<std::string, std::string>> result = {
      {"LD_PRELOAD", path_list(settings.places.overlay, preload)},
      {"FSDP_OVERLAY", place},
      {"FSDP_OVERLAY_FREE", free},
      {"FSDP_OVERLAY_WATCH", writes == Writes::Allowed ? "1" : "0"}};
  if (writes == Writes::Redirected) result.emplace_back("TMPDIR", place + "/tmp");
  return result;
}

std::vector<RehearsalWarning> describe_writes(const RehearsalSettings& settings, const std::string& folder) {
  switch (writes_of(settings)) {
    case Writes::Redirected:
      return describe_redirected(folder);
    case Writes::Allowed:
      return describe_allowed(folder);
    case Writes::Unwatched:
      return {{"allowed_writes",
               "--allow-writes, and the library that would note them is not there: what the script wrote is on your "
               "disk and is meaningless: a rehearsal computes no values."}};
  }
  return {};
}

}  // namespace fsdp::runs

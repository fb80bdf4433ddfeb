#include "core/base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/base/file_descriptor.h"
#include "core/base/nearest.h"

namespace fsdp {

namespace {

// In a folder with more names, comparing each would take too long to help.
constexpr std::size_t kMostNames = 4096;
constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/";

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const stream = opendir(folder.c_str());
  if (stream == nullptr) return names;
  while (const dirent* entry = readdir(stream)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    if (names.size() == kMostNames) break;
  }
  closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

tl::unexpected<Errors> missing_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) {
    const std::string target = std::filesystem::read_symlink(path, ignored).string();
    return failure(path, "There is no such file.",
                   fmt::format("It is a link to \"{}\", which does not exist.", target));
  }
  const std::string folder = folder_of(path);
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return failure(path, "There is no such file.", fmt::format("The folder \"{}\" does not exist either.", folder));
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::optional<std::string> nearest = nearest_name(name, names_in(folder));
  if (!nearest) return failure(path, "There is no such file.", "Check the path.");
  const std::string prefix = path.substr(0, path.size() - name.size());
  return failure(path, "There is no such file.", fmt::format("Did you mean \"{}{}\"?", prefix, *nearest));
}

/// Whether a named pipe, opened without waiting, has a writer; without one, a reader might wait forever. Reads the
/// first part into `text`. Later reads wait.
bool has_writer(int pipe, std::string& text) {
  char first = 0;
  const ssize_t got = read(pipe, &first, 1);
  if (got == 1) text += first;
  fcntl(pipe, F_SETFL, fcntl(pipe, F_GETFL) & ~O_NONBLOCK);
  return got == 1 || (got < 0 && errno == EAGAIN);
}

bool is_named_pipe(const std::string& path) {
  struct stat info {};
  // A pipe that a shell made for a process (/dev/fd/63) has a writer, or had one.
  return stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode) && !path.starts_with("/dev/fd/") &&
         !path.starts_with("/proc/") && path != "/dev/stdin";
}

std::string folder_hint(const std::string& folder) {
  std::error_code ignored;
  const bool is_hugging_face = std::filesystem::exists(folder + "/config.json", ignored);
  if (!is_hugging_face) return "Name a file in it.";
  return "It looks like a model of Hugging Face, which is named as a model: fsdp-plan FOLDER --gpus 4 --mem 16G.";
}

std::string reason(int error) {
  return std::strerror(error);
}

bool write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

tl::unexpected<Errors> not_written(const std::string& path, int error) {
  return failure(path, fmt::format("The file cannot be written: {}.", reason(error)),
                 "Nothing was changed. Choose another place with -o.");
}

tl::unexpected<Errors> exists_already(const std::string& path) {
  return failure(path, "The file exists.", "Choose another name, or overwrite it with --force.");
}

Result<void> write_to_device(const std::string& path, std::string_view content) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (file.number() < 0 || !write_all(file.number(), content)) return not_written(path, errno);
  return {};
}

/// Renames the temporary file. A rename replaces an existing file; a link refuses to, in one step, so that one of two
/// writers wins.
int publish(const std::string& temporary, const std::string& target, Overwrite overwrite) {
  if (overwrite == Overwrite::Allow) return rename(temporary.c_str(), target.c_str());
  if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
  // For a file system without that flag. The link leaves a second name, which is removed.
  if (link(temporary.c_str(), target.c_str()) != 0) return -1;
  unlink(temporary.c_str());
  return 0;
}

void sync_folder(const std::string& folder) {
  const FileDescriptor directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder; the file itself is safe already.
  if (directory.number() >= 0) static_cast<void>(fsync(directory.number()));
}

/// The permissions of a new file: those of the replaced file, otherwise those of the user's mask.
mode_t wanted_mode(const std::string& target) {
  struct stat info {};
  if (stat(target.c_str(), &info) == 0) return info.st_mode & 07777;
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::size_t most_bytes) {
  const bool is_standard_input = path == "-";
  const std::string name = is_standard_input ? "standard input" : path;
  const bool is_pipe = !is_standard_input && is_named_pipe(path);
  const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | (is_pipe ? O_NONBLOCK : 0);
  const FileDescriptor file(is_standard_input ? STDIN_FILENO : open(path.c_str(), flags));
  if (file.number() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return missing_file(path);
    return failure(name, fmt::format("The file cannot be read: {}.", reason(errno)), {});
  }
  struct stat info {};
  if (fstat(file.number(), &info) == 0 && S_ISDIR(info.st_mode))
    return failure(name, "This is a folder, not a file.", folder_hint(path));
  std::string text;
  if (is_pipe && !has_writer(file.number(), text))
    return failure(name, "This is a named pipe without a writer.", "Name a file, or - for the standard input.");
  if (S_ISREG(info.st_mode) && info.st_size > 0 && info.st_size <= static_cast<off_t>(most_bytes))
    text.reserve(static_cast<std::size_t>(info.st_size) + 1);
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = read(file.number(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure(name, fmt::format("The file cannot be read: {}.", reason(errno)), {});
    if (got == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > most_bytes)
      return failure(name, fmt::format("The file has more than {} MiB.", most_bytes >> 20),
                     "No file that this program reads is that large.");
  }
  if (text.empty()) return failure(name, "The file is empty.", {});
  if (text.starts_with(kLfsPointer))
    return failure(name, "This is a Git LFS pointer, not the file itself.", "Fetch the file with \"git lfs pull\".");
  return text;
}

std::string first_bytes_of(const std::string& path, std::size_t most_bytes) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  std::string text(most_bytes, '\0');
  const ssize_t got = file.number() < 0 ? -1 : read(file.number(), text.data(), text.size());
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

Result<void> write_file_atomically(const std::string& path, std::string_view content, Overwrite overwrite) {
  std::error_code ignored;
  std::string target = path;
  // Replacing a link by a file would disconnect the link's target from its other names.
  if (std::filesystem::is_symlink(path, ignored)) target = std::filesystem::weakly_canonical(path, ignored).string();
  struct stat info {};
  if (stat(target.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return failure(path, "This is a folder, not a file.", "Name a file in it.");
    if (!S_ISREG(info.st_mode)) return write_to_device(path, content);
    if (overwrite == Overwrite::Refuse) return exists_already(path);
  }
  const std::string folder = folder_of(target);
  if (!std::filesystem::is_directory(folder, ignored))
    return failure(path, fmt::format("The folder \"{}\" does not exist.", folder), "Create it first.");

  const mode_t mode = wanted_mode(target);
  std::string temporary = target + ".XXXXXX";
  FileDescriptor file(mkostemp(temporary.data(), O_CLOEXEC));
  if (file.number() < 0) return not_written(path, errno);
  const bool written = write_all(file.number(), content) && fchmod(file.number(), mode) == 0 &&
                       fsync(file.number()) == 0 && file.close() == 0 && publish(temporary, target, overwrite) == 0;
  if (!written) {
    const int error = errno;
    unlink(temporary.c_str());
    if (error == EEXIST) return exists_already(path);
    return not_written(path, error);
  }
  sync_folder(folder);
  return {};
}

}  // namespace fsdp

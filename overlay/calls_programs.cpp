// Starting programs and loading libraries.
//
// A program gets this library and its settings even if the script gives it its own environment. These functions may run
// between vfork and exec, so they use only the stack.

#include <alloca.h>
#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>

#include "overlay/calls.h"
#include "overlay/kernel.h"
#include "overlay/settings.h"

extern char** environ;

using namespace fsdp::overlay;

namespace {

constexpr std::size_t kMostOurs = 5;

bool has_name(const char* entry, std::string_view name) {
  return std::strncmp(entry, name.data(), name.size()) == 0 && entry[name.size()] == '=';
}

const char* value_in(char* const* environment, std::string_view name) {
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    if (has_name(*environment, name)) return *environment + name.size() + 1;
  }
  return nullptr;
}

std::size_t count_of(char* const* list) {
  std::size_t count = 0;
  while (list != nullptr && list[count] != nullptr) ++count;
  return count;
}

/// This library's own file.
const Text& library() {
  static const Text path = [] {
    Dl_info info{};
    const bool found = dladdr(reinterpret_cast<const void*>(&has_name), &info) != 0 && info.dli_fname != nullptr;
    return Text(found ? info.dli_fname : "");
  }();
  return path;
}

// Runs before any fork.
__attribute__((constructor)) void find_library() {
  library();
}

bool is_complete(char* const* environment) {
  if (!settings().active) return true;
  const char* preload = value_in(environment, "LD_PRELOAD");
  return value_in(environment, "FSDP_OVERLAY") != nullptr && preload != nullptr &&
         std::strstr(preload, library().c_str()) != nullptr;
}

/// Space for the variables that an environment lacks.
struct Ours {
  Text preload;
  Text folder;
  Text free;
  Text watch;
};

/// Fills `out`, which has room for kMostOurs more than `environment`.
void complete(char* const* environment, Ours& ours, char** out) {
  std::size_t count = 0;
  for (char* const* each = environment; each != nullptr && *each != nullptr; ++each) {
    bool is_ours = false;
    for (const std::string_view name : {"LD_PRELOAD", "FSDP_OVERLAY", "FSDP_OVERLAY_FREE", "FSDP_OVERLAY_WATCH"}) {
      is_ours = is_ours || has_name(*each, name);
    }
    if (!is_ours) out[count++] = *each;
  }
  const char* preload = value_in(environment, "LD_PRELOAD");
  ours.preload.assign("LD_PRELOAD=");
  ours.preload.append(library().view());
  if (preload != nullptr && preload[0] != '\0' && std::strstr(preload, library().c_str()) == nullptr) {
    ours.preload.append(":");
    ours.preload.append(preload);
  }
  ours.folder.assign("FSDP_OVERLAY=");
  ours.folder.append(settings().folder.view());
  ours.free.assign("FSDP_OVERLAY_FREE=");
  ours.free.append(settings().free.view());
  ours.watch.assign(settings().watch ? "FSDP_OVERLAY_WATCH=1" : "FSDP_OVERLAY_WATCH=0");
  for (Text* text : {&ours.preload, &ours.folder, &ours.free, &ours.watch}) out[count++] = text->data();
  out[count] = nullptr;
}

/// execve of a path, relative to a folder.
int become(int base, const char* path, char* const* words, char* const* environment, int flags) {
  Text real;
  const Use use = for_reading(base, path, true, real);
  if (use == Use::Fails) return -1;
  Ours ours;
  if (!is_complete(environment)) {
    auto** all = static_cast<char**>(alloca((count_of(environment) + kMostOurs) * sizeof(char*)));
    complete(environment, ours, all);
    environment = all;
  }
  const long with = kernel::to(chosen(use, path, real));
  if (chosen(use, base) == AT_FDCWD && flags == 0) {
    return static_cast<int>(answer(kernel::call(SYS_execve, with, kernel::to(words), kernel::to(environment))));
  }
  return static_cast<int>(
      answer(kernel::call(SYS_execveat, chosen(use, base), with, kernel::to(words), kernel::to(environment), flags)));
}

/// A file without "#!" runs in the shell: execvp(3).
int become_shell(const char* path, char* const* words, char* const* environment) {
  const std::size_t count = count_of(words);
  auto** all = static_cast<char**>(alloca((count + 3) * sizeof(char*)));
  static char shell[] = "/bin/sh";
  all[0] = shell;
  all[1] = const_cast<char*>(path);
  for (std::size_t i = 1; i < count; ++i) all[i + 1] = words[i];
  all[(count == 0 ? 1 : count) + 1] = nullptr;
  return become(AT_FDCWD, shell, all, environment, 0);
}

int become_found(const char* file, char* const* words, char* const* environment) {
  if (file[0] == '\0') return errno = ENOENT, -1;
  if (std::strchr(file, '/') != nullptr) {
    become(AT_FDCWD, file, words, environment, 0);
    return errno == ENOEXEC ? become_shell(file, words, environment) : -1;
  }
  const char* path = value_in(environ, "PATH");
  std::string_view rest = path == nullptr ? "/bin:/usr/bin" : path;
  int error = ENOENT;
  while (true) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    Text candidate(rest.substr(0, end));
    if ((candidate.empty() || candidate.append("/")) && candidate.append(file)) {
      become(AT_FDCWD, candidate.c_str(), words, environment, 0);
      if (errno == ENOEXEC) return become_shell(candidate.c_str(), words, environment);
      if (errno == EACCES) {
        error = EACCES;
      } else if (errno != ENOENT && errno != ENOTDIR && errno != ENODEV && errno != ETIMEDOUT && errno != ESTALE) {
        return -1;
      }
    }
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  return errno = error, -1;
}

/// The words of execl and its like, up to the null pointer that ends them.
std::size_t count_words(va_list arguments) {
  va_list copy;
  va_copy(copy, arguments);
  std::size_t count = 0;
  while (va_arg(copy, char*) != nullptr) ++count;
  va_end(copy);
  return count;
}

using Spawn = int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const[],
                  char* const[]);

int spawn(const char* name, pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
          const posix_spawnattr_t* attributes, char* const words[], char* const environment[]) {
  Text real;
  const bool is_path = std::strchr(path, '/') != nullptr;
  const Use use = is_path ? for_reading(AT_FDCWD, path, true, real) : Use::AsIs;
  if (use == Use::Fails) return errno;
  Ours ours;
  if (!is_complete(environment)) {
    auto** all = static_cast<char**>(alloca((count_of(environment) + kMostOurs) * sizeof(char*)));
    complete(environment, ours, all);
    environment = all;
  }
  return next<Spawn>(name)(pid, chosen(use, path, real), actions, attributes, words, environment);
}

}  // namespace

FSDP_CALL int execve(const char* path, char* const words[], char* const environment[]) {
  return become(AT_FDCWD, path, words, environment, 0);
}
FSDP_CALL int execv(const char* path, char* const words[]) {
  return become(AT_FDCWD, path, words, environ, 0);
}
FSDP_CALL int execvp(const char* file, char* const words[]) {
  return become_found(file, words, environ);
}
FSDP_CALL int execvpe(const char* file, char* const words[], char* const environment[]) {
  return become_found(file, words, environment);
}
FSDP_CALL int execveat(int base, const char* path, char* const words[], char* const environment[], int flags) {
  return become(base, path, words, environment, flags);
}
FSDP_CALL int fexecve(int file, char* const words[], char* const environment[]) {
  return become(file, "", words, environment, AT_EMPTY_PATH);
}

#define FSDP_TAKE_WORDS(first)                                             \
  va_list arguments;                                                       \
  va_start(arguments, first);                                              \
  const std::size_t count = count_words(arguments) + 1;                    \
  auto** words = static_cast<char**>(alloca((count + 1) * sizeof(char*))); \
  words[0] = const_cast<char*>(first);                                     \
  for (std::size_t i = 1; i <= count; ++i) words[i] = va_arg(arguments, char*);

FSDP_CALL int execl(const char* path, const char* word, ...) {
  FSDP_TAKE_WORDS(word)
  va_end(arguments);
  return become(AT_FDCWD, path, words, environ, 0);
}
FSDP_CALL int execlp(const char* file, const char* word, ...) {
  FSDP_TAKE_WORDS(word)
  va_end(arguments);
  return become_found(file, words, environ);
}
FSDP_CALL int execle(const char* path, const char* word, ...) {
  FSDP_TAKE_WORDS(word)
  char* const* environment = va_arg(arguments, char* const*);
  va_end(arguments);
  return become(AT_FDCWD, path, words, environment, 0);
}

FSDP_CALL int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                          const posix_spawnattr_t* attributes, char* const words[], char* const environment[]) {
  return spawn("posix_spawn", pid, path, actions, attributes, words, environment);
}
FSDP_CALL int posix_spawnp(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                           const posix_spawnattr_t* attributes, char* const words[], char* const environment[]) {
  return spawn("posix_spawnp", pid, path, actions, attributes, words, environment);
}
FSDP_CALL int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t* actions, int file, const char* path,
                                               int flags, mode_t mode) {
  Text real;
  const Use use = for_opening(AT_FDCWD, path, flags, real);
  if (use == Use::Fails) return errno;
  return next<int(posix_spawn_file_actions_t*, int, const char*, int, mode_t)>("posix_spawn_file_actions_addopen")(
      actions, file, chosen(use, path, real), flags, mode);
}

/// The C library checks its caller to find the folders to search. The jump at the end preserves the original caller,
/// which is why this file is always optimized.
FSDP_CALL void* dlopen(const char* path, int flags) {
  static const auto real_dlopen = next<void*(const char*, int)>("dlopen");
  static thread_local Text real;
  if (path != nullptr && std::strchr(path, '/') != nullptr) {
    const Use use = for_reading(AT_FDCWD, path, true, real);
    if (use == Use::Other) path = real.c_str();
  }
  return real_dlopen(path, flags);
}

// Opening files: by path, by stream, and by the name of shared memory. The C library opens a stream with its own
// internal call of open, which we do not see, so it gets the prepared path.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "overlay/calls.h"
#include "overlay/kernel.h"

using namespace fsdp::overlay;

namespace {

bool takes_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

int open_file(int base, const char* path, int flags, mode_t mode) {
  Text real;
  const Use use = for_opening(base, path, flags, real);
  if (use == Use::Fails) return -1;
  return static_cast<int>(answer(kernel::call(SYS_openat, chosen(use, base), kernel::to(chosen(use, path, real)), flags,
                                              static_cast<long>(mode))));
}

mode_t mode_of(int flags, va_list arguments) {
  return takes_mode(flags) ? va_arg(arguments, mode_t) : 0;
}

FILE* open_stream(const char* name, const char* path, const char* mode) {
  Text real;
  const Use use = for_opening(AT_FDCWD, path, flags_of_mode(mode), real);
  if (use == Use::Fails) return nullptr;
  return next<FILE*(const char*, const char*)>(name)(chosen(use, path, real), mode);
}

/// mkstemp and its like: the C library fills in the name in the upper layer, and the script gets it as part of its own
/// path.
template <class Make>
auto make_temporary(char* name, std::size_t suffix, Make make, decltype(make(name)) failed) {
  Text real;
  const Use use = for_making(AT_FDCWD, name, real);
  if (use == Use::Fails) return failed;
  if (use == Use::AsIs) return make(name);
  const auto result = make(real.data());
  const std::size_t size = std::strlen(name);
  if (size >= suffix + 6 && result != failed) {
    std::memcpy(name + size - suffix - 6, real.c_str() + real.size() - suffix - 6, 6);
  }
  return result;
}

/// The path of POSIX shared memory with this name. Sources: shm_open(3); glibc, posix/shm-directory.c.
bool path_of_shared_memory(const char* name, Text& path) {
  while (*name == '/') ++name;
  const std::string_view rest(name);
  errno = rest.size() > NAME_MAX ? ENAMETOOLONG : EINVAL;
  if (rest.empty() || rest.size() > NAME_MAX || rest.find('/') != std::string_view::npos) return false;
  return path.assign("/dev/shm/") && path.append(rest);
}

int make_temporary_file(char* name, int suffix, int flags) {
  return make_temporary(
      name, static_cast<std::size_t>(suffix),
      [&](char* path) { return next<int(char*, int, int)>("mkostemps")(path, suffix, flags); }, -1);
}

}  // namespace

FSDP_CALL int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_file(AT_FDCWD, path, flags, mode);
}
FSDP_ALSO(open64, open);

FSDP_CALL int openat(int base, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_file(base, path, flags, mode);
}
FSDP_ALSO(openat64, openat);

FSDP_CALL int __open_2(const char* path, int flags) {
  return open_file(AT_FDCWD, path, flags, 0);
}
FSDP_ALSO(__open64_2, __open_2);

FSDP_CALL int __openat_2(int base, const char* path, int flags) {
  return open_file(base, path, flags, 0);
}
FSDP_ALSO(__openat64_2, __openat_2);

FSDP_CALL int creat(const char* path, mode_t mode) {
  return open_file(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}
FSDP_ALSO(creat64, creat);

FSDP_CALL int shm_open(const char* name, int flags, mode_t mode) {
  Text path;
  return path_of_shared_memory(name, path) ? open_file(AT_FDCWD, path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, mode)
                                           : -1;
}

FSDP_CALL int shm_unlink(const char* name) {
  Text path;
  if (!path_of_shared_memory(name, path)) return -1;
  const int result = unlink(path.c_str());
  if (result != 0 && errno == EPERM) errno = EACCES;
  return result;
}

FSDP_CALL FILE* fopen(const char* path, const char* mode) {
  return open_stream("fopen", path, mode);
}
FSDP_ALSO(fopen64, fopen);

FSDP_CALL FILE* freopen(const char* path, const char* mode, FILE* stream) {
  Text real;
  const Use use = path == nullptr ? Use::AsIs : for_opening(AT_FDCWD, path, flags_of_mode(mode), real);
  if (use == Use::Fails) {
    const int error = errno;
    std::fclose(stream);
    errno = error;
    return nullptr;
  }
  return next<FILE*(const char*, const char*, FILE*)>("freopen")(chosen(use, path, real), mode, stream);
}
FSDP_ALSO(freopen64, freopen);

/// The C library's is in /tmp without a name.
FSDP_CALL FILE* tmpfile() {
  const int file = memfd_create("tmpfile", MFD_CLOEXEC);
  return file < 0 ? nullptr : fdopen(file, "w+b");
}
FSDP_ALSO(tmpfile64, tmpfile);

FSDP_CALL int mkstemp(char* name) {
  return make_temporary_file(name, 0, 0);
}
FSDP_ALSO(mkstemp64, mkstemp);

FSDP_CALL int mkostemp(char* name, int flags) {
  return make_temporary_file(name, 0, flags);
}
FSDP_ALSO(mkostemp64, mkostemp);

FSDP_CALL int mkstemps(char* name, int suffix) {
  return make_temporary_file(name, suffix, 0);
}
FSDP_ALSO(mkstemps64, mkstemps);

FSDP_CALL int mkostemps(char* name, int suffix, int flags) {
  return make_temporary_file(name, suffix, flags);
}
FSDP_ALSO(mkostemps64, mkostemps);

FSDP_CALL char* mkdtemp(char* name) {
  char* const made = make_temporary(
      name, 0, [](char* path) { return next<char*(char*)>("mkdtemp")(path); }, nullptr);
  return made == nullptr ? nullptr : name;
}

FSDP_CALL int truncate(const char* path, off_t size) {
  Text real;
  const Use use = for_opening(AT_FDCWD, path, size == 0 ? O_WRONLY | O_TRUNC : O_WRONLY, real);
  if (use == Use::Fails) return -1;
  return static_cast<int>(answer(kernel::call(SYS_truncate, kernel::to(chosen(use, path, real)), size)));
}
FSDP_ALSO(truncate64, truncate);

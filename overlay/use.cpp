#include "overlay/use.h"

#include <fcntl.h>

#include <cerrno>

#include "overlay/changes.h"
#include "overlay/kernel.h"
#include "overlay/settings.h"

namespace fsdp::overlay {

namespace {

bool is_nothing(const char* path) {
  return path == nullptr || path[0] == '\0';
}

Use use_upper(const Place& place, Text& real) {
  if (!upper_path(place.path.view(), real)) return fails(ENAMETOOLONG);
  if (place.slash) real.append("/");
  return Use::Other;
}

/// Uses the existing file without a change.
Use use_as_found(const Place& place, Text& real) {
  switch (place.layer) {
    case Layer::None:
      return fails(ENOENT);
    case Layer::Opaque:
      return Use::AsIs;
    case Layer::Upper:
      return use_upper(place, real);
    case Layer::Lower:
    case Layer::Free:
      break;
  }
  if (!place.crossed) return Use::AsIs;
  real = place.path;
  if (place.slash) real.append("/");
  return Use::Other;
}

bool is_protected(const Place& place) {
  return place.layer != Layer::Free && place.layer != Layer::Opaque;
}

/// Only the owner may change the attributes of a file.
bool is_ours(const struct stat& status) {
  const auto user = static_cast<uid_t>(kernel::call(SYS_geteuid));
  return user == 0 || user == status.st_uid;
}

Use open_existing(Place& place, int flags, Text& real) {
  constexpr int kOnlyNew = O_CREAT | O_EXCL;
  if ((flags & kOnlyNew) == kOnlyNew) return fails(EEXIST);
  if (S_ISDIR(place.status.st_mode)) return fails(EISDIR);
  if (S_ISLNK(place.status.st_mode)) return fails(ELOOP);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  if (!S_ISREG(place.status.st_mode) || !writes) return use_as_found(place, real);
  if (settings().watch) return note(place.path.view()), Use::AsIs;
  if (place.layer == Layer::Lower) {
    if (const int error = -kernel::access(place.path.c_str(), W_OK)) return fails(error);
    const int error = raise(place, (flags & O_TRUNC) != 0 ? Contents::Empty : Contents::Copied);
    if (error != 0) return fails(error);
  }
  return use_upper(place, real);
}

Use make_at(const Place& place, Text& real) {
  if (const int error = may_change_folder_of(place.path.view())) return fails(error);
  if (settings().watch) return note(place.path.view()), Use::AsIs;
  if (const int error = make_folders_above(place.path.view())) return fails(error);
  return upper_path(place.path.view(), real) ? Use::Other : fails(ENAMETOOLONG);
}

Use change(Place& place, Text& real) {
  if (!is_ours(place.status)) return fails(EPERM);
  if (settings().watch) return note(place.path.view()), Use::AsIs;
  if (const int error = raise(place)) return fails(error);
  return use_upper(place, real);
}

}  // namespace

Use fails(int error) {
  errno = error;
  return Use::Fails;
}

long answer(long result) {
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

Use for_reading(int base, const char* path, bool follow, Text& real) {
  if (!settings().active || settings().watch || !is_used() || is_nothing(path)) return Use::AsIs;
  Place place;
  if (const int error = locate(base, path, follow, place)) return fails(error);
  if (place.layer == Layer::Free && !place.exists) place.exists = true;  // the kernel decides whether it exists
  return use_as_found(place, real);
}

Use for_opening(int base, const char* path, int flags, Text& real) {
  const bool is_unnamed = (flags & O_TMPFILE) == O_TMPFILE;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0 || is_unnamed;
  const bool follows = (flags & O_NOFOLLOW) == 0;
  if ((flags & O_PATH) != 0 || !writes) return for_reading(base, path, follows, real);
  if (!settings().active || is_nothing(path)) return Use::AsIs;
  const bool only_new = (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0;
  Place place;
  if (const int error = locate(base, path, follows && !only_new, place)) return fails(error);
  if (!is_protected(place)) return use_as_found(place, real);
  if (is_unnamed) {
    if (!place.exists) return fails(ENOENT);
    if (settings().watch) return Use::AsIs;
    if (place.layer == Layer::Lower) {
      if (const int error = -kernel::access(place.path.c_str(), W_OK)) return fails(error);
    }
    if (const int error = raise(place)) return fails(error);
    return use_upper(place, real);
  }
  if (place.exists) return open_existing(place, flags, real);
  if ((flags & O_CREAT) == 0) return fails(ENOENT);
  if (place.slash) return fails(EISDIR);
  return make_at(place, real);
}

Use for_changing(int base, const char* path, bool follow, Text& real) {
  if (!settings().active || is_nothing(path)) return Use::AsIs;
  Place place;
  if (const int error = locate(base, path, follow, place)) return fails(error);
  if (!is_protected(place)) return use_as_found(place, real);
  return place.exists ? change(place, real) : fails(ENOENT);
}

Use for_changing(int file, Text& real) {
  Text path;
  bool is_upper = false;
  if (!settings().active || !path_of(file, path, is_upper) || is_upper) return Use::AsIs;
  Place place;
  if (locate(AT_FDCWD, path.c_str(), false, place) != 0 || !is_protected(place) || !place.exists) return Use::AsIs;
  return change(place, real);
}

Use for_making(int base, const char* path, Text& real) {
  if (!settings().active || is_nothing(path)) return Use::AsIs;
  Place place;
  if (const int error = locate(base, path, false, place)) return fails(error);
  if (!is_protected(place)) return use_as_found(place, real);
  return place.exists ? fails(EEXIST) : make_at(place, real);
}

int flags_of_mode(const char* mode) {
  const bool updates = std::strchr(mode, '+') != nullptr;
  switch (mode[0]) {
    case 'w':
      return O_WRONLY | O_CREAT | O_TRUNC | (std::strchr(mode, 'x') != nullptr ? O_EXCL : 0);
    case 'a':
      return O_WRONLY | O_CREAT;
    default:
      return updates ? O_RDWR : O_RDONLY;
  }
}

}  // namespace fsdp::overlay

// One walk over the components of a path. For each folder on the way it knows whether the upper layer has it, whether
// there are marks below it, and whether the lower layer is hidden. ".." removes the last folder, whose name is
// canonical by then.
//
// Not modeled: links below /proc to an object without a path (a pipe, a removed file) are left to the kernel.

#include "overlay/place.h"

#include <algorithm>
#include <cerrno>

#include "overlay/kernel.h"
#include "overlay/settings.h"

namespace fsdp::overlay {

namespace {

constexpr int kMostLinks = 40;  // The kernel's limit: path_resolution(7).
constexpr std::size_t kMostDepth = 1024;
constexpr std::string_view kMark = "\x01";
constexpr std::string_view kDeleted = " (deleted)";

struct Level {
  unsigned short size = 0;  // Size of the path up to here.
  bool upper = true;
  bool marked = true;
  bool hidden = false;
};

bool with_prefix(std::string_view part, std::string_view path, Text& out) {
  return out.assign(settings().folder.view()) && out.append(part) && out.append(path);
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/// "pipe:[7]", "/memfd:x (deleted)": the descriptor of an object without a path.
bool is_kernels_own(std::string_view target) {
  return target.find(":[") != std::string_view::npos || ends_with(target, kDeleted);
}

class Walk {
 public:
  Walk(Place& place, bool follow) : place_(place), follow_(follow) {}

  int start(int base, const char* path) {
    if (path[0] != '/') {
      if (!path_of(base, todo_)) return place_.layer = Layer::Opaque, 0;
      place_.crossed = came_from_upper_;
      if (!todo_.append("/")) return ENAMETOOLONG;
    }
    if (!todo_.append(path)) return ENAMETOOLONG;
    const std::string_view inside = without_upper(todo_.view());
    if (inside.size() != todo_.size()) {
      place_.crossed = true;
      todo_.assign(inside);
    }
    return run();
  }

 private:
  bool path_of(int base, Text& out) {
    if (base == AT_FDCWD) {
      Text raw;
      const long size = kernel::call(SYS_getcwd, kernel::to(raw.data()), PATH_MAX);
      if (size <= 1 || raw.data()[0] != '/') return false;
      raw.cut(static_cast<std::size_t>(size) - 1);
      const std::string_view seen = without_upper(raw.view());
      came_from_upper_ = seen.size() != raw.size();
      return out.assign(seen);
    }
    return overlay::path_of(base, out, came_from_upper_);
  }

  int run() {
    level_[0] = {};
    while (true) {
      std::string_view rest = todo_.view();
      rest.remove_prefix(std::min(rest.find_first_not_of('/'), rest.size()));
      const std::string_view name = rest.substr(0, rest.find('/'));
      if (name.empty()) return finish_folder();
      std::string_view behind = rest.substr(name.size());
      const bool has_slash = !behind.empty();
      behind.remove_prefix(std::min(behind.find_first_not_of('/'), behind.size()));
      const bool is_last = behind.empty();
      if (is_last) place_.slash = has_slash;
      const std::size_t done = todo_.size() - behind.size();
      if (name == "." || name == "..") {
        // Back from a folder that the lower layer may not have.
        if (name == "..") place_.crossed = place_.crossed || saw_upper_;
        if (name == ".." && depth_ > 0) --depth_;
        place_.path.cut(level_[depth_].size);
        todo_.drop(done);
        continue;
      }
      if (const int error = enter(name)) return error;
      if (!place_.exists) {
        if (!is_last) return ENOENT;
        return 0;
      }
      if (S_ISLNK(place_.status.st_mode) && (!is_last || follow_ || has_slash)) {
        if (const int error = follow_link(behind)) return error == -1 ? 0 : error;
        continue;
      }
      if (is_last) return has_slash && !S_ISDIR(place_.status.st_mode) ? ENOTDIR : 0;
      if (!S_ISDIR(place_.status.st_mode)) return ENOTDIR;
      todo_.drop(done);
    }
  }

  /// The path ended in ".", "..", "/" or a link to one of them.
  int finish_folder() {
    if (depth_ == 0) {
      place_.path.assign("/");
      place_.layer = Layer::Lower;
      place_.exists = true;
      place_.marked = place_.hidden = false;
      return -kernel::status("/", place_.status);
    }
    // Looks up the last component again, for its status.
    const Level parent = level_[depth_ - 1];
    Text name(place_.path.view().substr(static_cast<std::size_t>(parent.size) + 1));
    --depth_;
    place_.path.cut(parent.size);
    const int error = enter(name.view());
    return error != 0 ? error : place_.exists ? 0 : ENOENT;
  }

  int enter(std::string_view name) {
    if (name.size() > NAME_MAX || depth_ + 1 >= kMostDepth) return ENAMETOOLONG;
    const Level parent = level_[depth_];
    Level& here = level_[++depth_];
    here = {};
    if (!place_.path.append("/") || !place_.path.append(name)) return ENAMETOOLONG;
    here.size = static_cast<unsigned short>(place_.path.size());
    here.upper = false;
    here.hidden = parent.hidden;
    Text other;
    if (parent.upper) {
      if (!with_prefix("/files", place_.path.view(), other)) return ENAMETOOLONG;
      here.upper = kernel::status(other.c_str(), place_.status) == 0;
    }
    here.marked = false;
    if (parent.marked) {
      if (!with_prefix("/removed", place_.path.view(), other)) return ENAMETOOLONG;
      here.marked = kernel::access(other.c_str(), F_OK) == 0;
      other.append(kMark);
      here.hidden = here.hidden || kernel::access(other.c_str(), F_OK) == 0;
    }
    place_.hidden = here.hidden;
    place_.marked = here.marked;
    place_.exists = here.upper;
    if (here.upper) {
      place_.layer = Layer::Upper;
      saw_upper_ = true;
      return 0;
    }
    place_.layer = is_free(place_.path.view()) ? Layer::Free : Layer::None;
    if (here.hidden) {
      place_.crossed = true;
      return 0;
    }
    const int error = -kernel::status(place_.path.c_str(), place_.status);
    if (error != 0) return error == ENOENT ? 0 : error;
    place_.exists = true;
    if (place_.layer == Layer::None) place_.layer = Layer::Lower;
    return 0;
  }

  /// Returns -1 if the link leads to no path.
  int follow_link(std::string_view behind) {
    if (++links_ > kMostLinks) return ELOOP;
    Text real;
    if (place_.layer == Layer::Upper) {
      if (!upper_path(place_.path.view(), real)) return ENAMETOOLONG;
      place_.crossed = true;
    } else {
      real = place_.path;
    }
    Text target;
    const long size = kernel::read_link(real.c_str(), target.data(), PATH_MAX - 1);
    if (size < 0) return static_cast<int>(-size);
    target.cut(static_cast<std::size_t>(size));
    if (is_in(place_.path.view(), "/proc") && is_kernels_own(target.view())) {
      place_.layer = Layer::Opaque;
      return -1;
    }
    const std::string_view seen = without_upper(target.view());
    Text joined(seen);
    if (!joined.append("/") || !joined.append(behind)) return ENAMETOOLONG;
    // A "/" after a link at the end of a path would require a folder.
    if (behind.empty() && !place_.slash) joined.cut(seen.size());
    todo_ = joined;
    if (!seen.empty() && seen[0] == '/') depth_ = 0;
    if (depth_ > 0) --depth_;
    place_.path.cut(level_[depth_].size);
    return 0;
  }

  Place& place_;
  const bool follow_;
  bool came_from_upper_ = false;
  bool saw_upper_ = false;
  int links_ = 0;
  std::size_t depth_ = 0;
  Text todo_;
  Level level_[kMostDepth];
};

}  // namespace

std::string_view without_upper(std::string_view path) {
  Text files;
  if (!with_prefix("/files", "", files) || !is_in(path, files.view())) return path;
  path.remove_prefix(files.size());
  return path.empty() ? std::string_view("/") : path;
}

bool upper_path(std::string_view path, Text& out) {
  return with_prefix("/files", path, out);
}

bool mark_path(std::string_view path, Text& out) {
  return with_prefix("/removed", path, out) && out.append(kMark);
}

bool path_of(int file, Text& path, bool& is_upper) {
  char name[32] = "/proc/self/fd/";
  char digits[16];
  int count = 0;
  if (file < 0) return false;
  for (int rest = file; count == 0 || rest > 0; rest /= 10) digits[count++] = static_cast<char>('0' + rest % 10);
  std::size_t end = std::strlen(name);
  while (count > 0) name[end++] = digits[--count];
  name[end] = '\0';
  Text raw;
  const long size = kernel::read_link(name, raw.data(), PATH_MAX - 1);
  if (size <= 0 || raw.data()[0] != '/') return false;
  raw.cut(static_cast<std::size_t>(size));
  if (ends_with(raw.view(), kDeleted)) return false;
  const std::string_view seen = without_upper(raw.view());
  is_upper = seen.size() != raw.size();
  return path.assign(seen);
}

int locate(int base, const char* path, bool follow, Place& place) {
  place = {};
  Walk walk(place, follow);
  return walk.start(base, path);
}

}  // namespace fsdp::overlay

#pragma once

// A path in a fixed buffer: the functions of this library run between fork and exec, inside malloc and in signal
// handlers, where they must not allocate.

#include <climits>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace fsdp::overlay {

/// A text of at most PATH_MAX - 1 bytes, always followed by a zero.
class Text {
 public:
  Text() { text_[0] = '\0'; }
  explicit Text(std::string_view text) { assign(text); }
  Text(const Text& other) { assign(other.view()); }
  Text& operator=(const Text& other) {
    assign(other.view());
    return *this;
  }

  /// False, without a change, if there is no room.
  bool assign(std::string_view text) {
    if (text.size() >= sizeof text_) return false;
    std::memmove(text_, text.data(), text.size());
    cut(text.size());
    return true;
  }
  bool append(std::string_view text) {
    if (size_ + text.size() >= sizeof text_) return false;
    std::memmove(text_ + size_, text.data(), text.size());
    cut(size_ + text.size());
    return true;
  }
  /// Removes bytes from the front.
  void drop(std::size_t size) {
    std::memmove(text_, text_ + size, size_ - size);
    cut(size_ - size);
  }
  void cut(std::size_t size) {
    size_ = size;
    text_[size] = '\0';
  }

  const char* c_str() const { return text_; }
  char* data() { return text_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::string_view view() const { return {text_, size_}; }

 private:
  std::size_t size_ = 0;
  char text_[PATH_MAX];
};

/// The text before the last "/"; "/" for a path in the root.
inline std::string_view folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string_view::npos ? std::string_view("/") : path.substr(0, slash);
}

/// Whether `path` is `folder` or lies in it; neither ends in "/".
inline bool is_in(std::string_view path, std::string_view folder) {
  return path.substr(0, folder.size()) == folder && (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace fsdp::overlay

#pragma once

// A kernel's guard around a process and all that it starts: they write, make, move or remove files only in the named
// folders, and (Linux 6.12) signal no other process.

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::runs {

/// Rules that a child applies to itself before it becomes another program. They are permanent.
class Confinement {
 public:
  /// `writable`: folders with all below them, and devices; skips missing paths. `nullopt` if the kernel has no
  /// Landlock, or one that would forbid moving files between folders.
  static std::optional<Confinement> make(const std::vector<std::string>& writable);
  ~Confinement();
  Confinement(Confinement&& other) noexcept : rules_(std::exchange(other.rules_, -1)) {}
  Confinement& operator=(Confinement&& other) noexcept {
    std::swap(rules_, other.rules_);
    return *this;
  }

  int rules() const { return rules_; }

 private:
  explicit Confinement(int rules) : rules_(rules) {}
  int rules_;
};

/// In the child, between fork and exec: gives up new privileges, by which a program could ignore preloaded
/// libraries, and applies the rules unless `rules` is -1. Calls only functions that signal-safety(7) allows.
void confine_this_process(int rules);

}  // namespace fsdp::runs

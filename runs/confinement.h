#pragma once

// A kernel's guard around a process and all that it starts: no file may be written, made, moved or removed but in the
// folders that are named, and (Linux 6.12) no other process be sent a signal.

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::planner {

/// Rules that a child takes upon itself before it becomes another program; they cannot be taken off again.
class Confinement {
 public:
  /// `writable`: folders with all below them, and devices. Nothing when the kernel has no Landlock, or one that would
  /// forbid moving files between folders. A path that is not there is left out.
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

/// In the child, between fork and exec: gives up new privileges, by which a program could ignore what is preloaded, and
/// takes the rules upon itself; none with -1. Only what signal-safety(7) allows.
void confine_this_process(int rules);

}  // namespace fsdp::planner

// Landlock's interface, defined here because the kernel header of the build may be older than the running kernel.
//
// Sources: landlock(7); linux/landlock.h of Linux 6.12. Version 1 (Linux 5.13) has no right to move files between
// folders, so that moves inside a writable folder would fail with EXDEV; version 2 came with 5.19, truncate with
// version 3, a scope of signals with version 6 (Linux 6.12). A process with rules can neither mount nor trace a process
// without them, in any version.
//
// Not modeled: Landlock does not restrict modes, owners and times.

#include "runs/confinement.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "runs/system_call_filter.h"

namespace fsdp::runs {

namespace {

constexpr long kCreateRules = 444;
constexpr long kAddRule = 445;
constexpr long kRestrict = 446;
constexpr unsigned kAskForVersion = 1;
constexpr long kBelowPath = 1;
constexpr long kLeastVersion = 2;
constexpr long kScopesSignals = 6;
constexpr std::uint64_t kSignals = std::uint64_t{1} << 1;  // LANDLOCK_SCOPE_SIGNAL

/// Longer than older kernels know it; they accept it if the rest is 0.
struct RulesAttributes {
  std::uint64_t files;
  std::uint64_t network;
  std::uint64_t scoped;
};
struct __attribute__((packed)) PathRule {
  std::uint64_t allowed;
  std::int32_t folder;
};

/// LANDLOCK_ACCESS_FS_*: write a file (bit 1), remove and make each kind (4 to 12), refer (13), truncate (14).
std::uint64_t rights_of(long version) {
  std::uint64_t rights = std::uint64_t{1} << 1;
  for (int bit = 4; bit <= 13; ++bit) rights |= std::uint64_t{1} << bit;
  if (version >= 3) rights |= std::uint64_t{1} << 14;
  return rights;
}

/// The rights that exist for a path that is not a folder: write and truncate.
constexpr std::uint64_t kOfFiles = std::uint64_t{1} << 1 | std::uint64_t{1} << 14;

}  // namespace

std::optional<Confinement> Confinement::make(const std::vector<std::string>& writable) {
  const long version = syscall(kCreateRules, nullptr, 0, kAskForVersion);
  if (version < kLeastVersion) return std::nullopt;
  const RulesAttributes attributes{
      .files = rights_of(version), .network = 0, .scoped = version >= kScopesSignals ? kSignals : 0};
  const long rules = syscall(kCreateRules, &attributes, sizeof attributes, 0);
  if (rules < 0) return std::nullopt;
  Confinement confinement(static_cast<int>(rules));
  for (const std::string& path : writable) {
    const int file = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (file < 0) continue;
    struct stat status {};
    const bool is_folder = fstat(file, &status) == 0 && S_ISDIR(status.st_mode);
    const PathRule rule{is_folder ? attributes.files : attributes.files & kOfFiles, file};
    const long added = syscall(kAddRule, confinement.rules_, kBelowPath, &rule, 0);
    close(file);
    if (added != 0) return std::nullopt;
  }
  return confinement;
}

Confinement::~Confinement() {
  if (rules_ >= 0) close(rules_);
}

void confine_this_process(int rules) {
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  stop_calls_that_change_paths();
  if (rules >= 0 && syscall(kRestrict, rules, 0) != 0) _exit(127);
}

}  // namespace fsdp::runs

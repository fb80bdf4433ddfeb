#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

namespace fsdp::planner {

/// A process of our own that tidies up when we die without a chance to: it ends all that was started for a rehearsal,
/// and removes its folder. It leaves when this object does.
class Keeper {
 public:
  /// `folder`: the rehearsal's; its processes have its name in their environment. Where no process can be made, nobody
  /// keeps.
  explicit Keeper(const std::string& folder);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// 0: there is none.
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int to_keeper_ = -1;
};

/// Removes folders of rehearsals in `base` whose owner is gone without a keeper, as when a whole job is killed.
/// `lock_folder` marks a folder as having an owner, until this process ends.
void remove_stale_folders(const std::string& base);
void lock_folder(const std::string& folder);

}  // namespace fsdp::planner

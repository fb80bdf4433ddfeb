#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

namespace fsdp::runs {

/// A process of our own that cleans up if we die first: it ends all processes of a rehearsal and removes its
/// folder. It leaves when this object does.
class Keeper {
 public:
  /// `folder`: the rehearsal's; its processes have the name in their environment. Without a process for it, no
  /// keeper runs.
  explicit Keeper(const std::string& folder);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// 0 if there is none.
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int to_keeper_ = -1;
};

/// Removes folders of rehearsals in `base` whose owner is gone without a keeper, for example after a whole job was
/// killed. `lock_folder` marks a folder as owned until this process ends.
void remove_stale_folders(const std::string& base);
void lock_folder(const std::string& folder);

}  // namespace fsdp::runs

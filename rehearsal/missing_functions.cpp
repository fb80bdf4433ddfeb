#include "rehearsal/missing_functions.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "rehearsal/options.h"
#include "rehearsal/stub_gpu.h"

namespace fsdp::rehearsal {
namespace {

struct Missing {
  std::mutex mutex;
  std::set<std::string, std::less<>> names;
};

Missing& missing() {
  static Missing* const instance = new Missing;  // never destroyed: static destructors still call us
  return *instance;
}

}  // namespace

void note_missing(std::string_view function) {
  Missing& m = missing();
  const std::lock_guard lock(m.mutex);
  if (m.names.emplace(function).second) {
    trace(Trace::Calls, "missing %.*s", static_cast<int>(function.size()), function.data());
  }
}

std::string missing_functions() {
  Missing& m = missing();
  const std::lock_guard lock(m.mutex);
  std::string list;
  for (const std::string& name : m.names) {
    if (!list.empty()) list += '\n';
    list += name;
  }
  return list;
}

}  // namespace fsdp::rehearsal

uint64_t stub_gpu_missing(char* out, uint64_t room) {
  const std::string list = fsdp::rehearsal::missing_functions();
  if (room > 0) {
    const uint64_t fits = std::min<uint64_t>(room - 1, list.size());
    std::memcpy(out, list.data(), fits);
    out[fits] = 0;
  }
  return list.size();
}

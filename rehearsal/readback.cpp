#include "rehearsal/readback.h"

#include <dlfcn.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string_view>

#include "rehearsal/counters.h"
#include "rehearsal/stub_gpu.h"

// The copy itself does not show why the host wants the bytes: `item`, `nonzero`, `unique` all end in the same
// cudaMemcpyAsync. The native stack does. It is walked only when unknown bytes are copied and a callback is set. The
// dynamic linker looks through a library's symbols one by one, so each thread looks up an address only once.

namespace fsdp::rehearsal {
namespace {

using Callback = void (*)(const char*, uint64_t);
std::atomic<Callback> listener{nullptr};

struct Operation {
  std::string_view part;  // of a C++ symbol of libtorch
  const char* name;
};

// The first that any frame matches, so the more specific ones come first: masked_select calls nonzero.
constexpr Operation kOperations[] = {
    {"masked_select", "masked_select"},
    {"repeat_interleave", "repeat_interleave"},
    {"bincount", "bincount"},
    {"_unique_cuda", "unique"},
    {"_unique2", "unique"},
    {"unique_dim", "unique"},
    {"unique_consecutive", "unique"},
    {"is_nonzero", "item"},  // bool(tensor)
    {"nonzero", "nonzero"},
    {"_local_scalar_dense", "item"},
};
constexpr size_t kCopy = std::size(kOperations);

struct Walk {
  size_t best = kCopy;
  int frames = 0;
};

/// The first operation that the symbol at a code address names, or kCopy.
size_t operation_at(_Unwind_Ptr address) {
  thread_local std::map<_Unwind_Ptr, size_t> known;
  const auto [place, is_new] = known.try_emplace(address, kCopy);
  Dl_info info{};
  if (!is_new || dladdr(reinterpret_cast<const void*>(address), &info) == 0 || info.dli_sname == nullptr) {
    return place->second;
  }
  const std::string_view symbol = info.dli_sname;
  for (size_t i = kCopy; i-- > 0;) {
    if (symbol.find(kOperations[i].part) != std::string_view::npos) place->second = i;
  }
  return place->second;
}

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  constexpr int kFramesAtMost = 200;  // PyTorch's part of a stack is shorter; below it is the interpreter
  Walk& walk = *static_cast<Walk*>(argument);
  if (++walk.frames > kFramesAtMost) return _URC_END_OF_STACK;
  walk.best = std::min(walk.best, operation_at(_Unwind_GetIP(context)));
  return _URC_NO_REASON;
}

const char* asking_operation() {
  Walk walk;
  _Unwind_Backtrace(visit, &walk);
  return walk.best == kCopy ? "copy" : kOperations[walk.best].name;
}

}  // namespace

void notice_readback(uint64_t bytes) {
  count(Counter::Readback);
  const Callback callback = listener;
  if (callback != nullptr) callback(asking_operation(), bytes);
}

}  // namespace fsdp::rehearsal

void stub_gpu_on_readback(void (*callback)(const char* operation, uint64_t bytes)) {
  fsdp::rehearsal::listener = callback;
}

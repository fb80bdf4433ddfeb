#include "rehearsal/answers.h"

#include <cstring>
#include <deque>
#include <string>

#include "rehearsal/stub_gpu.h"

// An operation such as nonzero counts on the device, reads the count, and allocates its result.
// python/fsdp_rehearsal/known_values.py leaves a known count here before the operation runs; the real operation then
// allocates as it would on a real card. Answers belong to the thread that runs the operation.

namespace fsdp::rehearsal {
namespace {
thread_local std::deque<std::string> answers;
}  // namespace

bool answer_readback(void* to, uint64_t bytes) {
  if (answers.empty() || answers.front().size() < bytes) return false;
  std::memcpy(to, answers.front().data(), bytes);  // integers are little-endian: a shorter one is the beginning
  answers.pop_front();
  return true;
}

}  // namespace fsdp::rehearsal

void stub_gpu_answer_readback(const void* value, uint64_t bytes) {
  fsdp::rehearsal::answers.emplace_back(static_cast<const char*>(value), bytes);
}

void stub_gpu_forget_answers(void) {
  fsdp::rehearsal::answers.clear();
}

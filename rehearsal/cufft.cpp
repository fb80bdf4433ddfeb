// cuFFT: transforms that do nothing and whose plans need no workspace; only cuFFT knows the true sizes. PyTorch
// allocates the workspace itself, so a rehearsal is too low by that much (mostly for torch.stft on the card).
#include <atomic>
#include <cstddef>

#include "rehearsal/exported.h"

FSDP_STUB int cufftCreate(int* plan) {
  static std::atomic<int> next{0};
  *plan = ++next;
  return 0;
}
FSDP_STUB_SUCCEEDS(cufftDestroy)
FSDP_STUB_SUCCEEDS(cufftSetAutoAllocation)
FSDP_STUB_SUCCEEDS(cufftSetStream)
FSDP_STUB_SUCCEEDS(cufftSetWorkArea)
FSDP_STUB_COUNTED(cufftXtExec, Fft)

// Plan; number, sizes and layout of the input; layout of the output; batch; then the size; then the type.
FSDP_STUB int cufftXtMakePlanMany(int, int, long long*, long long*, long long, long long, int, long long*, long long,
                                  long long, int, long long, size_t* workspace_bytes, int) {
  *workspace_bytes = 0;
  return 0;
}

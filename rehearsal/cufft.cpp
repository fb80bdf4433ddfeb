// cuFFT: transforms that do nothing, and whose plans ask for no workspace; the true sizes are known to cuFFT alone.
// PyTorch allocates the workspace itself, so that a rehearsal has too little by that much (torch.stft on the card,
// mostly).
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

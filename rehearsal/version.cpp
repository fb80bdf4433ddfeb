#include "rehearsal/stub_gpu.h"

const char* stub_gpu_version() {
  return FSDP_STUB_GPU_VERSION;
}

# What the stub GPU is built from: the headers of the CUDA runtime and of NCCL. They come with PyTorch's own wheel, so that
# no CUDA toolkit is needed; a toolkit serves as well.

set(FSDP_TORCH_PYTHON "" CACHE FILEPATH
  "Python that has torch: brings the CUDA headers, and runs the tests of the rehearsal. Empty: build/python/torch-2.11.0, if it is there.")
set(fsdp_torch_python ${FSDP_TORCH_PYTHON})
if(NOT fsdp_torch_python AND EXISTS ${PROJECT_SOURCE_DIR}/build/python/torch-2.11.0/bin/python)
  set(fsdp_torch_python ${PROJECT_SOURCE_DIR}/build/python/torch-2.11.0/bin/python)
endif()

# The site-packages lie beside bin/python; asking the interpreter would load it at each configuration.
set(fsdp_torch_packages "")
if(fsdp_torch_python)
  cmake_path(GET fsdp_torch_python PARENT_PATH fsdp_torch_bin)
  file(GLOB fsdp_torch_packages ${fsdp_torch_bin}/../lib/python3*/site-packages/nvidia)
endif()

find_path(FSDP_CUDA_INCLUDE cuda_runtime_api.h
  HINTS ${fsdp_torch_packages} PATH_SUFFIXES cu13/include NO_DEFAULT_PATH)
find_path(FSDP_CUDA_INCLUDE cuda_runtime_api.h HINTS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include)
find_path(FSDP_NCCL_INCLUDE nccl.h HINTS ${fsdp_torch_packages} PATH_SUFFIXES nccl/include NO_DEFAULT_PATH)
find_path(FSDP_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(FSDP_CUDA_INCLUDE FSDP_NCCL_INCLUDE)

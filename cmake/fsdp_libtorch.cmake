# LibTorch, from the wheel of PyPI: its headers, libtorch_cpu.so and libc10.so, and nothing else, so that neither a CUDA
# toolkit nor the wheel's own TorchConfig.cmake (which asks for one) is needed. Where the wheel is the one for CUDA, with
# the packages of NVIDIA that it depends on, fsdp_torch_cuda is there too; those packages bring the headers of the CUDA
# runtime and of NCCL in the very versions of the libraries.

set(FSDP_LIBTORCH_VERSION 2.11)
set(FSDP_LIBTORCH "" CACHE PATH
  "Folder of a torch package (site-packages/torch). Empty: build/python/torch-2.11.0 or build/python/libtorch-2.11.0, if one is there.")
mark_as_advanced(FSDP_LIBTORCH)

set(fsdp_libtorch_folders ${FSDP_LIBTORCH})
if(NOT FSDP_LIBTORCH)
  file(GLOB fsdp_libtorch_folders
    ${PROJECT_SOURCE_DIR}/build/python/torch-2.11.0/lib/python3*/site-packages/torch
    ${PROJECT_SOURCE_DIR}/build/python/libtorch-2.11.0/lib/python3*/site-packages/torch)
endif()

set(FSDP_LIBTORCH_FOUND FALSE)
foreach(folder IN LISTS fsdp_libtorch_folders)
  if(FSDP_LIBTORCH_FOUND OR NOT EXISTS ${folder}/lib/libtorch_cpu.so)
    continue()
  endif()
  file(STRINGS ${folder}/version.py version REGEX "^__version__ = ")
  if(NOT version MATCHES "'${FSDP_LIBTORCH_VERSION}\\.")
    message(STATUS "${folder} is not of PyTorch ${FSDP_LIBTORCH_VERSION}, whose C++ interface the executor is written for.")
    continue()
  endif()
  set(FSDP_LIBTORCH_FOUND TRUE)
  add_library(fsdp_torch INTERFACE)
  target_include_directories(fsdp_torch SYSTEM INTERFACE ${folder}/include ${folder}/include/torch/csrc/api/include)
  target_compile_definitions(fsdp_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_libraries(fsdp_torch INTERFACE ${folder}/lib/libtorch_cpu.so ${folder}/lib/libc10.so)
  # An rpath that also counts for the libraries of the libraries.
  target_link_options(fsdp_torch INTERFACE -Wl,--disable-new-dtags -Wl,-rpath,${folder}/lib)
  cmake_path(SET fsdp_nvidia NORMALIZE ${folder}/../nvidia)
endforeach()

set(fsdp_cuda_libraries
  ${fsdp_nvidia}/../torch/lib/libtorch_cuda.so ${fsdp_nvidia}/../torch/lib/libc10_cuda.so
  ${fsdp_nvidia}/cu13/lib/libcudart.so.13 ${fsdp_nvidia}/nccl/lib/libnccl.so.2)
set(FSDP_LIBTORCH_CUDA_FOUND ${FSDP_LIBTORCH_FOUND})
foreach(file IN LISTS fsdp_cuda_libraries ITEMS ${fsdp_nvidia}/cu13/include/cuda_runtime_api.h ${fsdp_nvidia}/nccl/include/nccl.h)
  if(NOT EXISTS ${file})
    set(FSDP_LIBTORCH_CUDA_FOUND FALSE)
  endif()
endforeach()
if(FSDP_LIBTORCH_CUDA_FOUND)
  add_library(fsdp_torch_cuda INTERFACE)
  target_include_directories(fsdp_torch_cuda SYSTEM INTERFACE ${fsdp_nvidia}/cu13/include ${fsdp_nvidia}/nccl/include)
  # Kernels for CUDA register themselves when libtorch_cuda is loaded; no symbol of it is asked for.
  target_link_libraries(fsdp_torch_cuda INTERFACE
    fsdp_torch -Wl,--push-state,--no-as-needed ${fsdp_cuda_libraries} -Wl,--pop-state)
  target_link_options(fsdp_torch_cuda INTERFACE
    -Wl,-rpath,${fsdp_nvidia}/cu13/lib -Wl,-rpath,${fsdp_nvidia}/nccl/lib)
endif()

# LibTorch, from the wheel of PyPI: its headers, libtorch_cpu.so and libc10.so, and nothing else, so that neither a CUDA
# toolkit nor the wheel's own TorchConfig.cmake (which asks for one) is needed. Where the wheel is the one for CUDA, with
# the packages of NVIDIA that it depends on, fsdp_torch_cuda is there too; those packages bring the headers of the CUDA
# runtime and of NCCL in the very versions of the libraries.
#
# There may be two: quickstart brings the libraries alone, the rehearsal all of PyTorch. The one that builds more is taken.

set(FSDP_LIBTORCH_VERSION 2.11)
set(FSDP_LIBTORCH "" CACHE PATH
  "Folder of a torch package (site-packages/torch). Empty: build/python/torch-2.11.0 or build/python/libtorch-2.11.0, whichever builds more.")
mark_as_advanced(FSDP_LIBTORCH)

# fsdp_libtorch_lacks(FOLDER RESULT): what a torch package lacks for fsdp-exec-cuda, in words; empty: nothing.
function(fsdp_libtorch_lacks folder result)
  cmake_path(SET packages NORMALIZE ${folder}/..)
  set(lacks "")
  foreach(file torch/lib/libtorch_cuda.so torch/lib/libc10_cuda.so nvidia/cu13/lib/libcudart.so.13
      nvidia/cu13/include/cuda_runtime_api.h nvidia/nccl/lib/libnccl.so.2 nvidia/nccl/include/nccl.h)
    if(NOT EXISTS ${packages}/${file})
      list(APPEND lacks ${file})
    endif()
  endforeach()
  list(JOIN lacks ", " lacks)
  set(${result} "${lacks}" PARENT_SCOPE)
endfunction()

# fsdp_choose_libtorch(FOLDERS RESULT LACKS): the first of the folders that builds all, else the first that builds what
# is for CPU, else nothing; and what it lacks for GPUs.
function(fsdp_choose_libtorch folders result result_lacks)
  set(chosen "")
  set(chosen_lacks "")
  foreach(folder IN LISTS folders)
    if(NOT EXISTS ${folder}/lib/libtorch_cpu.so)
      continue()
    endif()
    file(STRINGS ${folder}/version.py version REGEX "^__version__ = ")
    if(NOT version MATCHES "'${FSDP_LIBTORCH_VERSION}\\.")
      message(STATUS "${folder} is not of PyTorch ${FSDP_LIBTORCH_VERSION}, whose C++ interface the executor is written for.")
      continue()
    endif()
    fsdp_libtorch_lacks(${folder} lacks)
    if(NOT chosen OR (chosen_lacks AND NOT lacks))
      set(chosen ${folder})
      set(chosen_lacks "${lacks}")
    endif()
  endforeach()
  set(${result} "${chosen}" PARENT_SCOPE)
  set(${result_lacks} "${chosen_lacks}" PARENT_SCOPE)
endfunction()

set(fsdp_libtorch_folders ${FSDP_LIBTORCH})
if(NOT FSDP_LIBTORCH)
  file(GLOB fsdp_libtorch_folders
    ${PROJECT_SOURCE_DIR}/build/python/torch-2.11.0/lib/python3*/site-packages/torch
    ${PROJECT_SOURCE_DIR}/build/python/libtorch-2.11.0/lib/python3*/site-packages/torch)
endif()
fsdp_choose_libtorch("${fsdp_libtorch_folders}" fsdp_libtorch_folder FSDP_LIBTORCH_LACKS)

set(FSDP_LIBTORCH_FOUND FALSE)
set(FSDP_LIBTORCH_CUDA_FOUND FALSE)
if(fsdp_libtorch_folder)
  set(FSDP_LIBTORCH_FOUND TRUE)
  add_library(fsdp_torch INTERFACE)
  target_include_directories(fsdp_torch SYSTEM INTERFACE
    ${fsdp_libtorch_folder}/include ${fsdp_libtorch_folder}/include/torch/csrc/api/include)
  target_compile_definitions(fsdp_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_libraries(fsdp_torch INTERFACE
    ${fsdp_libtorch_folder}/lib/libtorch_cpu.so ${fsdp_libtorch_folder}/lib/libc10.so)
  # An rpath that also counts for the libraries of the libraries.
  target_link_options(fsdp_torch INTERFACE -Wl,--disable-new-dtags -Wl,-rpath,${fsdp_libtorch_folder}/lib)
endif()
if(fsdp_libtorch_folder AND NOT FSDP_LIBTORCH_LACKS)
  set(FSDP_LIBTORCH_CUDA_FOUND TRUE)
  cmake_path(SET fsdp_nvidia NORMALIZE ${fsdp_libtorch_folder}/../nvidia)
  add_library(fsdp_torch_cuda INTERFACE)
  target_include_directories(fsdp_torch_cuda SYSTEM INTERFACE ${fsdp_nvidia}/cu13/include ${fsdp_nvidia}/nccl/include)
  # Kernels for CUDA register themselves when libtorch_cuda is loaded; no symbol of it is asked for.
  target_link_libraries(fsdp_torch_cuda INTERFACE
    fsdp_torch -Wl,--push-state,--no-as-needed
    ${fsdp_libtorch_folder}/lib/libtorch_cuda.so ${fsdp_libtorch_folder}/lib/libc10_cuda.so
    ${fsdp_nvidia}/cu13/lib/libcudart.so.13 ${fsdp_nvidia}/nccl/lib/libnccl.so.2 -Wl,--pop-state)
  target_link_options(fsdp_torch_cuda INTERFACE
    -Wl,-rpath,${fsdp_nvidia}/cu13/lib -Wl,-rpath,${fsdp_nvidia}/nccl/lib)
endif()

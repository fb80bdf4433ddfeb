# LibTorch, from the wheel of PyPI: its headers, libtorch_cpu.so and libc10.so, and nothing else, so that neither a CUDA
# toolkit nor the wheel's own TorchConfig.cmake (which asks for one) is needed.

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
endforeach()

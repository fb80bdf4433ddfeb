# Which parts of the program this machine can build, said in one block at the end of configuring.
#
# core, simulator and planner need a compiler and the packages of fsdp_dependencies. Each other part has a folder; a
# part whose folder is not in the tree is not in this version, whatever is installed, and the block says so.

find_package(Qt6 6.4 QUIET COMPONENTS Widgets Svg Concurrent Test)
find_package(CUDAToolkit QUIET)
include(fsdp_rehearsal)
include(fsdp_libtorch)
mark_as_advanced(FSDP_CCACHE Qt6_DIR)

set(FSDP_OPTIONAL_PARTS_BUILT "")
set(FSDP_PARTS_LEFT_OUT "")

# fsdp_optional_part(FOLDER WHAT NEEDS <name> <found>... ADD <command>): builds FOLDER if the tree has it and all that
# it needs is found; otherwise notes the reason and the command that adds what is missing.
macro(fsdp_optional_part FOLDER WHAT)
  cmake_parse_arguments(PART "" "ADD" "NEEDS" ${ARGN})
  set(part_missing "")
  while(PART_NEEDS)
    list(POP_FRONT PART_NEEDS part_need part_found)
    if(NOT ${part_found})
      list(APPEND part_missing ${part_need})
    endif()
  endwhile()
  list(JOIN part_missing ", " part_missing)
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/${FOLDER}/CMakeLists.txt)
    if(part_missing)
      string(PREPEND part_missing ", and this machine would lack ")
    endif()
    list(APPEND FSDP_PARTS_LEFT_OUT "${FOLDER} (${WHAT}): not in this version${part_missing}")
  elseif(part_missing)
    list(APPEND FSDP_PARTS_LEFT_OUT "${FOLDER} (${WHAT}): needs ${part_missing}. To add it: ${PART_ADD}")
  else()
    list(APPEND FSDP_OPTIONAL_PARTS_BUILT ${FOLDER})
  endif()
endmacro()

fsdp_optional_part(executor "trains a plan for real"
  NEEDS "LibTorch ${FSDP_LIBTORCH_VERSION}" FSDP_LIBTORCH_FOUND
  ADD "./scripts/bootstrap --with executor")
if(FSDP_LIBTORCH_FOUND AND NOT FSDP_LIBTORCH_CUDA_FOUND)
  list(APPEND FSDP_PARTS_LEFT_OUT
    "fsdp-exec-cuda (the executor on GPUs) and its tests: ${fsdp_libtorch_folder} lacks ${FSDP_LIBTORCH_LACKS}. To add them: ./scripts/bootstrap --with rehearsal")
endif()
fsdp_optional_part(rehearsal "runs a training script on a GPU that is not there"
  NEEDS "the headers of CUDA 13" FSDP_CUDA_INCLUDE "the headers of NCCL" FSDP_NCCL_INCLUDE
  ADD "./scripts/bootstrap --with rehearsal")
fsdp_optional_part(gui "the what-if explorer"
  NEEDS "Qt 6.4" Qt6_FOUND
  ADD "./scripts/bootstrap --with gui")

function(fsdp_print_parts)
  set(built core simulator "planner (fsdp-plan)" ${FSDP_OPTIONAL_PARTS_BUILT})
  set(left_out ${FSDP_PARTS_LEFT_OUT})
  if(BUILD_TESTING)
    list(APPEND built tests)
  else()
    list(APPEND left_out "tests: BUILD_TESTING is off. To add them: cmake --preset dev")
  endif()
  if(FSDP_BENCHMARKS)
    list(APPEND built benchmarks)
  elseif(NOT benchmark_FOUND)
    list(APPEND left_out "benchmarks: need Google Benchmark. To add them: ./scripts/bootstrap")
  else()
    list(APPEND left_out "benchmarks: FSDP_BENCHMARKS is off. To add them: cmake --preset release")
  endif()
  if(FSDP_FUZZ)
    list(APPEND built "fuzz targets")
  else()
    list(APPEND left_out "fuzz targets: they need clang. To add them: ./scripts/bootstrap --with dev, then cmake --preset fuzz")
  endif()

  set(notes "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}")
  if(FSDP_SANITIZE)
    string(APPEND notes ", sanitizers: ${FSDP_SANITIZE}")
  endif()
  if(FSDP_CCACHE)
    string(APPEND notes ", ccache")
  endif()
  list(JOIN built ", " built)
  message(STATUS "")
  message(STATUS "fsdp-plan ${PROJECT_VERSION} (${notes})")
  message(STATUS "  built     ${built}")
  foreach(line IN LISTS left_out)
    message(STATUS "  left out  ${line}")
  endforeach()
  message(STATUS "")
endfunction()

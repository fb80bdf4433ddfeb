# Headers of other people that nearly every file reads, compiled once for all targets that read the same. Half of a
# file's compile time goes into them. Never our own: a change of one would rebuild everything. The release preset does
# without, so that a file that forgets an #include does not go unnoticed; scripts/quickstart asks for them there, too.

option(FSDP_PRECOMPILE "Precompile the headers of the standard library, fmt, GoogleTest, Qt and LibTorch" OFF)

option(FSDP_UNITY "Compile the files of a target many at a time: a cold build takes half" OFF)

set(fsdp_precompiled_standard
  <algorithm> <array> <cmath> <cstdint> <filesystem> <functional> <map> <memory> <optional> <set> <span> <string>
  <string_view> <utility> <variant> <vector> <fmt/format.h> <tl/expected.hpp>)
set(fsdp_precompiled_test <fstream> <sstream> <gtest/gtest.h>)
set(fsdp_precompiled_property <rapidcheck.h> <rapidcheck/gtest.h>)
set(fsdp_precompiled_qt <QtCore> <QAction> <QApplication> <QLabel> <QPainter> <QVBoxLayout> <QWidget>)
set(fsdp_precompiled_torch <ATen/core/Tensor.h> <ATen/ops/empty.h>)

# fsdp_precompile(TARGET SET...): SET is standard, test, property, qt or torch. Targets that name the same sets share
# what the first of them compiled: one set of flags for all makes that possible. What differs (the include paths of
# Qt and LibTorch) must be there in the first.
function(fsdp_precompile TARGET)
  if(NOT FSDP_PRECOMPILE)
    return()
  endif()
  # GCC forgets that these are system headers, and warns of what it believes to see in its own strings (GCC bug 105562).
  target_compile_options(${TARGET} PRIVATE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-maybe-uninitialized;-Wno-restrict;-Wno-stringop-overflow>)
  string(REPLACE ";" "_" sets "${ARGN}")
  get_property(first GLOBAL PROPERTY fsdp_precompiled_${sets})
  if(first)
    target_precompile_headers(${TARGET} REUSE_FROM ${first})
    return()
  endif()
  set(first fsdp_headers_${sets})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${first}.cpp CONTENT "")
  add_library(${first} OBJECT ${PROJECT_BINARY_DIR}/generated/${first}.cpp)
  set_target_properties(${first} PROPERTIES AUTOMOC OFF AUTORCC OFF AUTOUIC OFF)
  # The target's own way of compiling, whatever it links.
  foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES)
    get_target_property(value ${TARGET} ${property})
    if(value)
      set_property(TARGET ${first} PROPERTY ${property} ${value})
    endif()
  endforeach()
  get_target_property(libraries ${TARGET} LINK_LIBRARIES)
  if(libraries)
    target_link_libraries(${first} PRIVATE ${libraries})
  endif()
  foreach(set IN LISTS ARGN)
    target_precompile_headers(${first} PRIVATE ${fsdp_precompiled_${set}})
  endforeach()
  set_property(GLOBAL PROPERTY fsdp_precompiled_${sets} ${first})
  target_precompile_headers(${TARGET} REUSE_FROM ${first})
endfunction()

# fsdp_unity(TARGET AT_ONCE): so many of its files may be compiled together, under FSDP_UNITY. They then share one
# anonymous namespace.
function(fsdp_unity TARGET AT_ONCE)
  if(FSDP_UNITY)
    set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${AT_ONCE})
  endif()
endfunction()

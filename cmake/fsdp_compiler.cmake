# One set of compiler flags for every target, and the switches that the presets turn.

set(FSDP_SANITIZE "" CACHE STRING
  "Sanitizers for every target, as -fsanitize= takes them: \"address,undefined\" or \"thread\". Empty for none.")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_BINDIR})

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

find_program(FSDP_CCACHE ccache)
if(FSDP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What ccache asks for before it keeps a file that was compiled with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${FSDP_CCACHE})
endif()

if(FSDP_SANITIZE)
  # Without recovery, so that a finding fails the test that met it.
  add_compile_options(-fsanitize=${FSDP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${FSDP_SANITIZE})
endif()

# fsdp_set_warnings(TARGET): every warning is an error. The sign of an index is not worth a cast at each use, and a
# designated initializer names what differs from the defaults, not every field.
function(fsdp_set_warnings TARGET)
  target_compile_options(${TARGET} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wno-sign-conversion;-Wno-missing-field-initializers;-Werror>)
  # Optimized code of GCC 12 raises false alarms in its own string and array headers (GCC bugs 105329 and 105562).
  # Debug builds keep the two warnings.
  target_compile_options(${TARGET} PRIVATE
    $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<CONFIG:Release,RelWithDebInfo>>:-Wno-restrict;-Wno-maybe-uninitialized>)
endfunction()

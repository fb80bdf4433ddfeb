# How a library, a program, a test, a benchmark and a fuzz target are declared. Source files are listed, not globbed, so
# that a diff shows a new file.

# Seconds after which a test counts as one that hangs. No test may depend on how busy the machine is, so this is far more than
# any of them takes on a slow one.
set(FSDP_TEST_TIMEOUT 1800)

# fsdp_library(NAME SOURCES <file>... DEPENDS <target>...)
#
# Defines fsdp_NAME and its alias fsdp::NAME with the project's one set of flags. DEPENDS is the only way to reach
# another folder; tests/layers_test.py fails if a file includes a folder that its own may not know about.
function(fsdp_library NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_SOURCES)
    add_library(fsdp_${NAME} INTERFACE)
    add_library(fsdp::${NAME} ALIAS fsdp_${NAME})
    target_link_libraries(fsdp_${NAME} INTERFACE ${ARG_DEPENDS})
    return()
  endif()
  add_library(fsdp_${NAME} STATIC ${ARG_SOURCES})
  add_library(fsdp::${NAME} ALIAS fsdp_${NAME})
  target_compile_features(fsdp_${NAME} PUBLIC cxx_std_20)
  # Includes start at the project root; the generated folder holds core/version.h under the same name.
  target_include_directories(fsdp_${NAME} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(fsdp_${NAME} PUBLIC ${ARG_DEPENDS})
  fsdp_set_warnings(fsdp_${NAME})
  fsdp_precompile(fsdp_${NAME} standard)
  fsdp_unity(fsdp_${NAME} 16)
endfunction()

# fsdp_program(NAME SOURCES <file>... DEPENDS <target>... COMPONENT <name>)
#
# Defines an executable that is installed, in the package COMPONENT if it has one of its own.
function(fsdp_program NAME)
  cmake_parse_arguments(ARG "" "COMPONENT" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPENDS})
  fsdp_set_warnings(${NAME})
  if(ARG_COMPONENT)
    install(TARGETS ${NAME} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${ARG_COMPONENT})
  else()
    install(TARGETS ${NAME} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endfunction()

# fsdp_test(FOLDER SOURCES <file>... DEPENDS <target>...)
#
# Defines the tests of one folder, each GoogleTest case being one ctest case with the label FOLDER. Files that end in
# _hostile_test.cpp feed broken input: they form an executable of their own, whose cases have the label FOLDER_hostile,
# so that a sanitizer build can build just those and `ctest -L hostile` runs them. A bare file name is a file of FOLDER;
# helpers that folders share are named from tests/, as in support/x.cpp, and are linked into both executables.
# Every case runs in the project root.
function(fsdp_test FOLDER)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  list(TRANSFORM ARG_SOURCES PREPEND ${FOLDER}/ REGEX "^[^/]+$")
  set(helpers ${ARG_SOURCES})
  list(FILTER helpers EXCLUDE REGEX "_test\\.cpp$")
  set(tests ${ARG_SOURCES})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  set(hostile ${tests})
  list(FILTER hostile INCLUDE REGEX "_hostile_test\\.cpp$")
  list(FILTER tests EXCLUDE REGEX "_hostile_test\\.cpp$")
  if(tests)
    fsdp_test_executable(${FOLDER} "${tests};${helpers}" "${ARG_DEPENDS}")
  endif()
  if(hostile)
    fsdp_test_executable(${FOLDER}_hostile "${hostile};${helpers}" "${ARG_DEPENDS}")
    add_dependencies(hostile_tests ${FOLDER}_hostile_test)
  endif()
endfunction()

# fsdp_test_executable(LABEL SOURCES DEPENDS): the executable LABEL_test, whose cases are called LABEL/Suite.Case.
function(fsdp_test_executable LABEL SOURCES DEPENDS)
  add_executable(${LABEL}_test ${SOURCES})
  target_link_libraries(${LABEL}_test PRIVATE ${DEPENDS} rapidcheck_gtest GTest::gtest_main)
  fsdp_set_warnings(${LABEL}_test)
  # What takes time is in the libraries: not to optimize the cases themselves takes a third off their build.
  target_compile_options(${LABEL}_test PRIVATE $<$<CONFIG:Debug>:-O0>)
  fsdp_precompile(${LABEL}_test standard test property)
  fsdp_unity(${LABEL}_test 16)
  gtest_discover_tests(${LABEL}_test
    TEST_PREFIX ${LABEL}/
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    DISCOVERY_TIMEOUT ${FSDP_TEST_TIMEOUT}
    PROPERTIES LABELS ${LABEL} TIMEOUT ${FSDP_TEST_TIMEOUT})
endfunction()

# fsdp_benchmark(NAME SOURCES <file>... DEPENDS <target>...)
function(fsdp_benchmark NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPENDS} benchmark::benchmark)
  fsdp_set_warnings(${NAME})
endfunction()

# fsdp_fuzz_target(NAME DEPENDS <target>...)
#
# Builds NAME.cpp, which defines LLVMFuzzerTestOneInput, with libFuzzer and the sanitizers.
function(fsdp_fuzz_target NAME)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  add_executable(${NAME} ${NAME}.cpp)
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPENDS})
  target_compile_options(${NAME} PRIVATE -fsanitize=fuzzer)
  target_link_options(${NAME} PRIVATE -fsanitize=fuzzer)
  fsdp_set_warnings(${NAME})
endfunction()

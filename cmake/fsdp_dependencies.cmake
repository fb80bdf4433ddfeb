# What the planner is built with. Everything is a Debian package found by find_package, and nothing is downloaded;
# scripts/bootstrap holds the list of packages. All that is missing is said at once.

set(FSDP_MISSING "")

# fsdp_require(PACKAGE [VERSION] WHAT): finds a package, or notes that it is missing.
macro(fsdp_require PACKAGE VERSION)
  find_package(${PACKAGE} ${VERSION} QUIET)
  if(NOT ${PACKAGE}_FOUND)
    string(STRIP "${PACKAGE} ${VERSION}" fsdp_missing_package)
    list(APPEND FSDP_MISSING "${fsdp_missing_package}")
  endif()
endmacro()

fsdp_require(fmt 9)
fsdp_require(CLI11 2.1)
fsdp_require(tl-expected "")
fsdp_require(ZLIB "")
fsdp_require(nlohmann_json 3.11)
fsdp_require(yaml-cpp 0.7)
fsdp_require(tomlplusplus 3.3)
if(BUILD_TESTING)
  fsdp_require(GTest "")
  fsdp_require(rapidcheck "")
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(NOT Python3_Interpreter_FOUND)
    list(APPEND FSDP_MISSING "Python 3")
  endif()
endif()

if(FSDP_MISSING)
  list(JOIN FSDP_MISSING ", " missing)
  message(FATAL_ERROR
    "This machine lacks ${missing}.\n"
    "Run ./scripts/bootstrap, which installs the Debian packages that the build needs, then configure again.")
endif()

find_package(Threads REQUIRED)
find_package(benchmark QUIET)
option(FSDP_BENCHMARKS "Build benchmarks/ with Google Benchmark" ${benchmark_FOUND})
option(FSDP_FUZZ "Build tests/fuzz/ with libFuzzer; needs clang" OFF)
if(FSDP_FUZZ AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR
    "FSDP_FUZZ needs clang, which brings libFuzzer, and this build uses ${CMAKE_CXX_COMPILER_ID}.\n"
    "Run ./scripts/bootstrap --with dev, then cmake --preset fuzz.")
endif()

# ccache, where it is installed: with paths relative to the checkout, so that every checkout finds what another has compiled.
find_program(WALPOST_CCACHE ccache)
if(WALPOST_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
    CCACHE_PCH_EXTSUM=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "${WALPOST_CCACHE}")
endif()

# One interface target carries the warnings and sanitizers, so third-party code is not affected.
add_library(walpost_compiler INTERFACE)
target_compile_options(walpost_compiler INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wold-style-cast -Wnon-virtual-dtor -Woverloaded-virtual)
if(WALPOST_WERROR)
  target_compile_options(walpost_compiler INTERFACE -Werror)
endif()
if(WALPOST_WERROR AND CMAKE_INTERPROCEDURAL_OPTIMIZATION AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # What only the linker sees: two types of one name.
  target_link_options(walpost_compiler INTERFACE -Werror=odr -Werror=lto-type-mismatch)
endif()
# For builds that are made once and not edited: several sources of a module in one compilation.
option(WALPOST_UNITY "Compile the sources of a module together" OFF)
if(WALPOST_UNITY)
  # A name in an unnamed namespace is then seen by the sources that follow.
  target_compile_options(walpost_compiler INTERFACE -Wno-shadow -Wno-subobject-linkage)
endif()
if(WALPOST_SANITIZE)
  target_compile_options(walpost_compiler INTERFACE
    -fsanitize=${WALPOST_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(walpost_compiler INTERFACE -fsanitize=${WALPOST_SANITIZE})
endif()

option(WALPOST_LIBFUZZER "Link the fuzz targets with clang's libFuzzer instead of the replay program" OFF)
if(WALPOST_LIBFUZZER)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "WALPOST_LIBFUZZER needs clang: configure a build folder of its own with -DCMAKE_CXX_COMPILER=clang++")
  endif()
  target_compile_options(walpost_compiler INTERFACE -fsanitize=fuzzer-no-link)  # what guides it
endif()

# Precompiled headers: with them a test compiles in about half the time. Off in the release preset, so that one build
# shows that each source includes what it uses.
option(WALPOST_PRECOMPILED "Compile the headers that most sources include only once" OFF)

# walpost_precompiled(name header libraries...): a target whose precompiled header others reuse.
function(walpost_precompiled name header)
  file(WRITE "${CMAKE_BINARY_DIR}/${name}.cc.new" "")
  file(COPY_FILE "${CMAKE_BINARY_DIR}/${name}.cc.new" "${CMAKE_BINARY_DIR}/${name}.cc" ONLY_IF_DIFFERENT)
  add_library(${name} OBJECT "${CMAKE_BINARY_DIR}/${name}.cc")
  target_link_libraries(${name} PRIVATE walpost_compiler ${ARGN})
  target_precompile_headers(${name} PRIVATE "${CMAKE_SOURCE_DIR}/cmake/${header}")
  # No two compiled headers are the same, so ccache takes this sum of their text for it. One checkout then finds what another
  # has compiled.
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -std=c++20 -E -P "${CMAKE_SOURCE_DIR}/cmake/${header}"
    OUTPUT_VARIABLE text ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
  string(SHA256 sum "${text}")
  file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx.gch.sum" "${sum}\n")
endfunction()

if(WALPOST_PRECOMPILED)
  # Out of a precompiled header g++ 12 warns about what the standard library and abseil inline. The release preset keeps
  # these warnings.
  target_compile_options(walpost_compiler INTERFACE
    -Wno-array-bounds -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
  walpost_precompiled(walpost_precompiled precompiled.h absl::strings)
endif()

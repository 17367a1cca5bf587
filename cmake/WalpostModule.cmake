# walpost_module(name SOURCES a.cc ... DEPENDS base ... LIBRARIES absl::status ...)
# One static library per folder of src/. DEPENDS names other modules and must agree with the module
# table in docs/design.md; scripts/lint compares both with the #include lines.
function(walpost_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  add_library(walpost_${name} STATIC ${ARG_SOURCES})
  target_include_directories(walpost_${name} PUBLIC "${CMAKE_SOURCE_DIR}/src")
  set(modules ${ARG_DEPENDS})
  list(TRANSFORM modules PREPEND walpost_)
  target_link_libraries(walpost_${name}
    PUBLIC ${modules} ${ARG_LIBRARIES}
    PRIVATE walpost_compiler)
  if(WALPOST_PRECOMPILED)
    target_precompile_headers(walpost_${name} REUSE_FROM walpost_precompiled)
  endif()
endfunction()

# walpost_test(name SOURCES a_test.cc ... LIBRARIES walpost_base ... [LABELS unit])
# A GoogleTest program, registered with ctest as one test per program.
function(walpost_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} walpost_compiler GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/tests")
  if(WALPOST_PRECOMPILED)
    target_precompile_headers(${name} REUSE_FROM walpost_precompiled_test)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300)
endfunction()

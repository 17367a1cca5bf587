# One interface target carries the warnings and sanitizers, so third-party code is not affected.
add_library(walpost_compiler INTERFACE)
target_compile_options(walpost_compiler INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wold-style-cast -Wnon-virtual-dtor -Woverloaded-virtual)
if(WALPOST_WERROR)
  target_compile_options(walpost_compiler INTERFACE -Werror)
endif()
if(WALPOST_SANITIZE)
  target_compile_options(walpost_compiler INTERFACE
    -fsanitize=${WALPOST_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(walpost_compiler INTERFACE -fsanitize=${WALPOST_SANITIZE})
endif()

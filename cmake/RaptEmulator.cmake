# rapt_emulated_kernel(NAME SOURCE [DEFINITIONS ...])
# An object library of one C++ source that includes device text and launches it on the emulator. The emulator's ptx/
# comes before the device's, and -fsanitize=thread makes every ordinary load and store of the text a call of the
# emulator's (src/emulator/instrument.cpp): nothing is linked with ThreadSanitizer. Link NAME and rapt_emulator.
function(rapt_emulated_kernel name source)
  cmake_parse_arguments(arg "" "" "DEFINITIONS" ${ARGN})
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE rapt_flags rapt_emulator)
  target_include_directories(${name} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/src/emulator
    ${PROJECT_SOURCE_DIR}/src/kernels ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  target_compile_options(${name} PRIVATE -fsanitize=thread -Wno-unknown-pragmas -Wno-unused-function
    $<$<CXX_COMPILER_ID:GNU>:--param=tsan-instrument-func-entry-exit=0>)
  # Unoptimised device text needs too much stack, and its registers would be loads and stores.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Debug>:-O1>)
endfunction()

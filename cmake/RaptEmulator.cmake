# rapt_emulated_kernel(NAME SOURCES...)
# An object library of C++ sources that include device text and launch it on the emulator. The emulator's ptx/ comes
# before the device's, and -fsanitize=thread makes every ordinary load and store a call of the emulator's
# (src/emulator/instrument.cpp): nothing is linked with ThreadSanitizer. A program links NAME and rapt_emulator.
function(rapt_emulated_kernel name)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)  # mutants take the place of one source
  target_link_libraries(${name} PRIVATE rapt_flags rapt_emulator)
  target_include_directories(${name} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/src/emulator
    ${PROJECT_SOURCE_DIR}/src/kernels ${PROJECT_SOURCE_DIR}/tests)
  # Device text has #pragma unroll, and wrappers that not every source uses.
  target_compile_options(${name} PRIVATE -fsanitize=thread -Wno-unknown-pragmas -Wno-unused-function
    $<$<CXX_COMPILER_ID:GNU>:--param=tsan-instrument-func-entry-exit=0>)
  # Unoptimised, registers would be instrumented loads and stores, and stacks large; -O3 takes twice as long to compile.
  target_compile_options(${name} PRIVATE -O1
    $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # which ccache asks for
endfunction()

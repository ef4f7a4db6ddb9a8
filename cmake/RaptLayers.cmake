# Layers, tests and flags.

add_library(rapt_flags INTERFACE)
target_compile_features(rapt_flags INTERFACE cxx_std_20)
# gcc 12 sees overlapping copies inside std::string (its bug 105651): -Wno-restrict.
target_compile_options(rapt_flags INTERFACE -Wall -Wextra -Wshadow -Wno-restrict
  $<$<BOOL:${RAPT_WERROR}>:-Werror>)
if(RAPT_SANITIZE)
  target_compile_options(rapt_flags INTERFACE -fsanitize=${RAPT_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  if(RAPT_SANITIZE MATCHES undefined)
    # What the address sanitizer finds as well, at half of the time to compile.
    target_compile_options(rapt_flags INTERFACE -fno-sanitize=null,object-size,pointer-overflow,vptr)
  endif()
  target_link_options(rapt_flags INTERFACE -fsanitize=${RAPT_SANITIZE})
endif()

# rapt_layer(NAME [DEPENDS layers...] SOURCES files...)
# A folder of src/ as a static library that links only the layers below it: a call upwards does not link. librapt is
# made of all layers' objects.
function(rapt_layer name)
  cmake_parse_arguments(arg "" "" "DEPENDS;SOURCES" ${ARGN})
  add_library(rapt_${name} STATIC ${arg_SOURCES})
  target_link_libraries(rapt_${name} PRIVATE $<BUILD_INTERFACE:rapt_flags>)
  foreach(below ${arg_DEPENDS})
    target_link_libraries(rapt_${name} PUBLIC rapt_${below})
  endforeach()
  target_include_directories(rapt_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/third_party)
  target_compile_features(rapt_${name} PUBLIC cxx_std_20)
  set_target_properties(rapt_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  set_property(GLOBAL APPEND PROPERTY RAPT_LAYERS rapt_${name})
endfunction()

# rapt_test(NAME SOURCES files... [LINK targets...] [LABELS ...])
# A GoogleTest program; every TEST in it is a test of CTest's. The target LABEL_tests builds all programs of a label.
# Its sources find GoogleTest precompiled and are compiled with -O1: they are read, compiled and run once, and what they
# test is another target's.
function(rapt_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;LABELS;DEFINITIONS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE rapt_flags rapt_test_flags ${arg_LINK} GTest::gtest_main)
  target_precompile_headers(${name} REUSE_FROM rapt_test_headers)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_BINARY_DIR}/tests
    ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)  # an empty value would shift the properties after it
  endif()
  if(NOT TARGET ${arg_LABELS}_tests)
    add_custom_target(${arg_LABELS}_tests)
  endif()
  add_dependencies(${arg_LABELS}_tests ${name})
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 300)
endfunction()

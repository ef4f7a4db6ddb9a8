# Writes text files into a C++ file that defines embedded_headers():
#   cmake -DROOT=src/kernels -DNAMES=a/b.cuh,c/d.cuh -DNAMESPACE=rapt::jit -DDECLARED_IN=jit/kernel_source.hpp
#     -DOUTPUT=file.cpp -P ...
string(REPLACE "," ";" names "${NAMES}")
list(LENGTH names count)
set(rows "")
foreach(name ${names})
  file(READ ${ROOT}/${name} text)
  string(FIND "${text}" ")rapt_text\"" ends)
  if(NOT ends EQUAL -1)
    message(FATAL_ERROR "${name} holds the mark that ends an embedded text")
  endif()
  string(APPEND rows "    {\"${name}\", R\"rapt_text(${text})rapt_text\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Made by cmake/embed_texts.cmake.
#include <array>

#include \"${DECLARED_IN}\"

namespace ${NAMESPACE} {
namespace {

constexpr std::array<HeaderText, ${count}> kHeaders = {{
${rows}}};

}  // namespace

std::span<const HeaderText> embedded_headers() {
  return kHeaders;
}

}  // namespace ${NAMESPACE}
")

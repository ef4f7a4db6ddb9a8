// A shared library of a user's with one function of its own.
#include "rapt/rapt.hpp"

extern "C" __attribute__((visibility("default"))) int plugin_threads() {
  return rapt::Context().num_threads();
}

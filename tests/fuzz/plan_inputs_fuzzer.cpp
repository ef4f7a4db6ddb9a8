// libFuzzer's door; built by clang with -DRAPT_LIBFUZZER=ON. Run: fuzz_plan_inputs -max_len=512
#include "fuzz/plan_inputs.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rapt::test::plan_bytes(data, size);
  return 0;
}

// cpu_decode [SECONDS]: decode attention's bandwidth beside the machine's, case by case.
#include <cstdio>
#include <cstdlib>

#include "bench/cpu_decode.hpp"

namespace {

void print(const rapt::bench::DecodeCase& c, double seconds) {
  const rapt::bench::DecodeFigures f = measure(c, seconds);
  const auto gb = [](const rapt::bench::Spread& s) {
    static char text[4][64];
    static int turn = 0;
    char* out = text[turn++ % 4];
    std::snprintf(out, 64, "%5.1f (%.1f-%.1f)", s.median * 1e-9, s.low * 1e-9, s.high * 1e-9);
    return out;
  };
  std::printf("%s\n  kernel %s  walk %s  walk+prefetch %s  sequential %s GB/s  plan %.1f us\n",
              c.describe().c_str(), gb(f.kernel), gb(f.page_walk), gb(f.page_walk_prefetch),
              gb(f.sequential), f.plan_us);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  using rapt::bench::DecodeCase;
  for (const int32_t page_size : {16, 64, 0}) {
    DecodeCase c;
    c.page_size = page_size;
    print(c, seconds);
  }
  DecodeCase separate;
  separate.shape = rapt::KvShape::kKvPages;
  print(separate, seconds);
  DecodeCase hnd;
  hnd.layout = rapt::KvLayout::kHND;
  print(hnd, seconds);
  DecodeCase few;
  few.num_requests = 5;
  few.kv_len = 2048;
  print(few, seconds);
  DecodeCase warm;
  warm.pool_bytes = 0;
  warm.kv_len = 4096;
  print(warm, seconds);
}

// Random problems on devices that have a pack and no compiler: a kernel that plan(), run() or
// write_kv() misses there is an error. Compiler and driver are fake ones, so nothing is computed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "fuzz/random_problem.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"

namespace rapt::test {
namespace {

constexpr int kNumProblems = 60;

Problem problem_of(int number) {
  // Where 8.0 has large tiles, 9.0 has them too: what one accepts, both do.
  return random_gpu_problem(static_cast<uint64_t>(number), device_info("a100"));
}

// A pack for what the problems need on both devices.
std::string build() {
  std::string folder = (std::filesystem::temp_directory_path() / "rapt_packed.XXXXXX").string();
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  const std::string pack = folder + "/some.rpk";
  setenv("RAPT_NVRTC", FAKE_LIBNVRTC, 1);
  PackOptions options{.architectures = {"80", "90a"}};
  for (int i = 0; i < kNumProblems; i++) options.specs.push_back(problem_of(i).spec);
  build_pack(pack, options);
  return pack;
}

// Everything that asks for kernels.
void use(Context& context, const Problem& problem) {
  Tensors tensors(problem);
  const Attention attention(context, problem.spec,
                            tensors.select_options({.name = "flash_attention"}));
  DeviceMirror mirror(context);
  tensors.put(mirror);
  const Plan plan = attention.plan(tensors.batch(mirror, /*table_on_device=*/false));
  tensors.write_cache(attention, mirror);
  attention.run(plan, tensors.args(plan, mirror));
}

TEST(PackedAttention, finds_every_kernel_where_there_is_no_compiler) {
  setenv("RAPT_LIBCUDA", FAKE_LIBCUDA, 1);
  const std::string pack = build();
  setenv("RAPT_NVRTC", "/nowhere/libnvrtc.so", 1);
  // The fake driver's devices are an H200 and an A100.
  for (const char* device : {"cuda:0", "cuda:1"}) {
    SCOPED_TRACE(device);
    Context context({.device = device, .num_threads = 1, .packs = {pack}, .cache_folder = ""});
    for (int i = 0; i < kNumProblems; i++) {
      SCOPED_TRACE(problem_of(i).describe());
      EXPECT_NO_THROW(use(context, problem_of(i)));
    }
    Problem other = problem_of(0);
    other.spec.num_query_heads = 9, other.spec.num_kv_heads = 1;
    other.requests = {{1, 1}};
    error_of(ErrorCode::kMissingLibrary, [&] { use(context, other); });
  }
  std::filesystem::remove_all(std::filesystem::path(pack).parent_path());
}

}  // namespace
}  // namespace rapt::test

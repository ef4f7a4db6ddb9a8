#include "jit/loaded_kernels.hpp"

#include "unit/jit/scratch.hpp"
#include "unit/launch/fake_driver.hpp"

namespace rapt::jit {
namespace {

using testing::HasSubstr;

// Makes images that the fake driver takes: a kernel with one parameter of 16 bytes.
class FakeImages : public CountingCompiler {
 public:
  using CountingCompiler::CountingCompiler;
  CompiledKernel compile(const TranslationUnit& unit) const override {
    CompiledKernel kernel = CountingCompiler::compile(unit);
    kernel.image = std::string("cubin attend 16\0", 16);
    return kernel;
  }
};

class LoadedKernelsTest : public cuda::FakeDriverTest {
 protected:
  StoreOptions options() const {
    StoreOptions options = counting_options(scratch_ / "cache", scratch_ / "log");
    options.make_compiler = [log = scratch_ / "log"] { return std::make_unique<FakeImages>(log); };
    return options;
  }

  const ScratchFolder scratch_;
  const cuda::Context h200_{cuda::Device(driver_, 0)}, a100_{cuda::Device(driver_, 1)};
};

TEST_F(LoadedKernelsTest, a_key_becomes_a_kernel_that_launches) {
  KernelStore store(options());
  LoadedKernels kernels(h200_, store);
  const cuda::Kernel& kernel = kernels.get(key_of(64), source_of(), 1000);
  EXPECT_EQ(kernel.name(), "attend");
  EXPECT_EQ(kernel.max_dynamic_shared_bytes(), 1000);
  const cuda::CurrentContext current(h200_);
  cuda::launch(kernel, {.block = {32}, .shared_bytes = 1000}, {}, std::array<int, 4>{1, 2, 3, 4});
  EXPECT_EQ(control_->launches.at(0).kernel, "attend");
}

TEST_F(LoadedKernelsTest, a_kernel_is_loaded_once_and_unloaded_with_them) {
  KernelStore store(options());
  {
    LoadedKernels kernels(h200_, store);
    const cuda::Kernel* first = &kernels.get(key_of(64), source_of(), 0);
    EXPECT_EQ(&kernels.get(key_of(64), source_of(), 0), first);
    EXPECT_NE(&kernels.get(key_of(128), source_of(), 0), first);
    EXPECT_EQ(control_->num_modules, 2);
    EXPECT_EQ(store.counters().builds, 2);
    LoadedKernels again(h200_, store);
    again.get(key_of(64), source_of(), 0);
    EXPECT_EQ(control_->num_modules, 3);
    EXPECT_EQ(store.counters().memory_hits, 1);
  }
  EXPECT_EQ(control_->num_modules, 0);
}

TEST_F(LoadedKernelsTest, code_for_another_device_is_refused_before_it_is_built) {
  KernelStore store(options());
  LoadedKernels kernels(a100_, store);
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { kernels.get(key_of(64), source_of(), 0); }),
            "kernel attend sm_90a head_dim=64 does not run on NVIDIA A100-SXM4-80GB, whose compute "
            "capability is 80: ask for its architecture");
  EXPECT_EQ(store.counters().builds, 0);
}

TEST_F(LoadedKernelsTest, what_the_driver_refuses_can_be_tried_again) {
  KernelStore store(options());
  LoadedKernels kernels(h200_, store);
  const auto get = [&] { kernels.get(key_of(64), source_of(), 0); };
  EXPECT_THAT(error_when_fails("cuModuleLoadData", get), HasSubstr("cuModuleLoadData of 16 bytes"));
  EXPECT_THAT(error_when_fails("cuModuleGetFunction", get), HasSubstr(" of attend"));
  EXPECT_EQ(control_->num_modules, 0);
  EXPECT_NO_THROW(get());
}

TEST_F(LoadedKernelsTest, threads_get_one_object) {
  KernelStore store(options());
  LoadedKernels kernels(h200_, store);
  std::vector<const cuda::Kernel*> seen(8);
  std::vector<std::thread> threads;
  for (const cuda::Kernel*& mine : seen)
    threads.emplace_back([&] { mine = &kernels.get(key_of(64), source_of(), 0); });
  for (std::thread& thread : threads) thread.join();
  for (const cuda::Kernel* one : seen) EXPECT_EQ(one, seen[0]);
  EXPECT_EQ(control_->num_modules, 1);
}

}  // namespace
}  // namespace rapt::jit

// Accesses to global and shared memory, by instructions and by ordinary C++.
#include <cmath>

#include "ptx/copy.cuh"
#include "ptx/threads.cuh"
#include "unit/emulator/run.hpp"

namespace rapt::device {
namespace {

constexpr u32 kBase = 1024;

class MemoryAccess : public testing::Test {
 protected:
  // The kernel runs in one thread.
  void expect_thread_report(const std::string& words, const std::function<void()>& kernel) {
    expect_report(memory_, kOneThread, words, kernel);
  }

  static constexpr Launch kOneThread = {.grid = {}, .threads = 1, .shared_bytes = 100};
  Memory memory_;
  std::span<float> buffer_ = memory_.allocate<float>(13, "buffer");
  std::span<float> other_ = memory_.allocate<float>(16, "other");
  volatile uintptr_t zero_ = 0;
  float* volatile pointer_ = buffer_.data();  // compilers see neither bounds nor unused loads
};

TEST_F(MemoryAccess, starts_from_nan) {
  for (const float x : buffer_) EXPECT_TRUE(std::isnan(x));
  Options unordered;
  unordered.check_order = false;
  launch(memory_, kOneThread, unordered, [&] {
    for (u32 i = 0; i < 25; ++i) buffer_[0] = shared_base<float>()[i] == 0 ? 0.f : buffer_[0];
  });
  EXPECT_TRUE(std::isnan(buffer_[0]));
}

TEST_F(MemoryAccess, is_as_wide_as_the_instruction) {
  for (u32 i = 0; i < 16; ++i) other_[i] = static_cast<float>(i);
  launch(memory_, kOneThread, {}, [&] {
    store_shared_16(kBase + 16, load_global_16(&other_[4]));
    store_shared_4(kBase + 20, load_shared_4(kBase + 28));
    store_global_16(&other_[8], load_shared_16(kBase + 16));
    store_global_f32(&other_[0], load_global_f32(&other_[3]));
    store_global_4(&other_[1], 0x40000000);
  });
  EXPECT_THAT(other_, testing::ElementsAre(3, 2, 2, 3, 4, 5, 6, 7, 4, 7, 6, 7, 12, 13, 14, 15));
}

TEST_F(MemoryAccess, of_an_instruction_lies_in_an_allocation) {
  expect_thread_report("4 bytes at 0 bytes past the end of buffer, not inside an allocation",
                       [&] { store_global_f32(pointer_ + 13, 1); });
  expect_thread_report("16 bytes at byte 48 of buffer, not inside an allocation",
                       [&] { load_global_16(pointer_ + 12); });
  expect_thread_report("of buffer, not inside an allocation",
                       [&] { load_global_f32(&pointer_[14]); });
  float local = 0;
  expect_thread_report("not inside an allocation", [&] { load_global_f32(&local); });
  expect_thread_report("not inside an allocation", [] { load_global_f32(nullptr); });
}

TEST_F(MemoryAccess, of_an_instruction_is_aligned) {
  expect_thread_report("st.global at memory_test.cpp", [&] { store_global_16(&other_[1], {}); });
  expect_thread_report("byte 4 of other is not aligned to 16 bytes",
                       [&] { store_global_16(&other_[1], {}); });
  expect_thread_report("byte 2 of shared memory is not aligned to 4 bytes",
                       [] { store_shared_4(kBase + 2, 0); });
}

TEST_F(MemoryAccess, of_an_instruction_lies_in_shared_memory) {
  expect_thread_report("byte 96 is outside the 100 bytes of shared memory",
                       [] { store_shared_16(kBase + 96, {}); });
  expect_thread_report("byte -1024 is outside", [] { load_shared_4(0); });
  expect_thread_report("shared_address() of what is not in shared memory",
                       [&] { shared_address(pointer_); });
}

TEST_F(MemoryAccess, of_ordinary_code_lies_in_an_allocation) {
  expect_thread_report("stores 4 bytes at 0 bytes past the end of buffer",
                       [&] { pointer_[13] = 0; });
  expect_thread_report("loads 4 bytes at 0 bytes past the end of buffer",
                       [&] { buffer_[0] = pointer_[13]; });
  expect_thread_report("stores 4 bytes at ", [&] { *reinterpret_cast<float*>(zero_) = 1; });
}

TEST_F(MemoryAccess, of_ordinary_code_lies_in_shared_memory) {
  expect_thread_report("byte 100 is outside the 100 bytes of shared memory", [] {
    float* volatile shared = shared_base<float>();
    shared[25] = 1;
  });
}

TEST_F(MemoryAccess, of_ordinary_code_does_not_write_the_hosts_memory) {
  static int on_host = 0;
  expect_thread_report("not inside its stack, shared memory or an allocation",
                       [] { *const_cast<volatile int*>(&on_host) = 1; });
}

TEST_F(MemoryAccess, of_ordinary_code_is_ordered_too) {
  const auto exchange = [](bool barrier) {
    volatile u32* shared = shared_base<u32>();
    shared[thread_index()] = 1;
    if (barrier) sync_block();
    (void)shared[thread_index() ^ 32];
  };
  expect_success(memory_, kTwoWarps, [&] { exchange(true); });
  for (uint64_t seed = 0; seed < 6; ++seed)
    EXPECT_THAT(report_of(memory_, kTwoWarps, {.seed = seed}, [&] { exchange(false); }),
                testing::ContainsRegex("C\\+\\+ code after .*(never written|nothing orders that)"));
}

TEST_F(MemoryAccess, by_reading_what_was_never_written_is_found) {
  expect_thread_report("reads byte 64 of shared memory, which was never written", [] {
    for (u32 i = 0; i < 16; ++i) store_shared_4(kBase + 4 * i, 0);
    load_shared_4(kBase + 4 * 16);
  });
}

TEST_F(MemoryAccess, faults_name_the_thread_and_the_buffer) {
  // The hooks don't see what assembly does.
  expect_thread_report("memory fault at 8 bytes past the end of other", [&] {
    const char* end = reinterpret_cast<const char*>(other_.data() + 16);
    u32 word;
    asm volatile("movl 8(%1), %0" : "=r"(word) : "r"(end));
  });
}

TEST_F(MemoryAccess, of_a_stack_that_overflows_is_found) {
  struct Recursion {
    static int into(int depth) {
      volatile char frame[512];
      frame[0] = static_cast<char>(depth);
      return depth == 0 ? 0 : into(depth - 1) + frame[0];
    }
  };
  const std::string report = report_of(memory_, kOneThread, {}, [] { Recursion::into(100000); });
  EXPECT_THAT(report, testing::HasSubstr("block (0, 0, 0) warp 0 lane 0"));
}

}  // namespace
}  // namespace rapt::device

// An application that has its own threads gives Rapt a way to use them: Rapt then starts none.
// The pool here is the plainest that works; the result is bit for bit that of Rapt's own pool with
// as many threads.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "rapt/rapt.hpp"

namespace {

constexpr int kThreads = 3, kTokens = 300, kHeads = 4, kDim = 32;
std::atomic<int> tasks_done{0};

// begin: parallel_for
// Runs task(i) for every i in [0, num_tasks) on kThreads threads, this one included.
void run_on_own_threads(int32_t num_tasks, const std::function<void(int32_t)>& task) {
  std::atomic<int32_t> next{0};
  auto drain = [&] {
    for (int32_t i; (i = next++) < num_tasks; tasks_done++) task(i);
  };
  std::vector<std::jthread> helpers;
  for (int t = 1; t < kThreads; t++) helpers.emplace_back(drain);
  drain();
}  // the helpers are joined here

rapt::ContextOptions options_with_own_threads() {
  return {.num_threads = kThreads,  // how many the plan should count on
          .parallel_for = run_on_own_threads};
}
// end: parallel_for

// Ragged self-attention of one prompt, no cache.
std::vector<float> attend(rapt::ContextOptions options) {
  using rapt::DType;
  rapt::Context context(std::move(options));
  const rapt::Attention attention(context, {.num_query_heads = kHeads,
                                            .num_kv_heads = kHeads,
                                            .head_dim_qk = kDim,
                                            .dtype = DType::kFloat32,
                                            .page_size = 0});
  std::vector<float> values(kTokens * kHeads * kDim), out(values.size());
  for (size_t i = 0; i < values.size(); i++) values[i] = std::sin(static_cast<float>(i));
  const std::vector<int32_t> start{0, kTokens}, kv_len{kTokens};
  const rapt::Plan plan =
      attention.plan({.query_start = start, .kv_len = kv_len, .kv_start = start});
  std::vector<std::byte> memory(plan.workspace_bytes() + rapt::kWorkspaceAlignment);
  const size_t past = reinterpret_cast<uintptr_t>(memory.data()) % rapt::kWorkspaceAlignment;
  auto rows = [](std::vector<float>& data) {
    return rapt::TensorView::contiguous(data.data(), DType::kFloat32, {kTokens, kHeads, kDim});
  };
  attention.run(plan, {.q = rows(values),
                       .k = rows(values),
                       .v = rows(values),
                       .out = rows(out),
                       .workspace = {memory.data() + rapt::kWorkspaceAlignment - past,
                                     plan.workspace_bytes()}});
  return out;
}

}  // namespace

int main() {
  const std::vector<float> own = attend(options_with_own_threads());
  const std::vector<float> rapts = attend({.num_threads = kThreads});
  const bool same = std::memcmp(own.data(), rapts.data(), own.size() * sizeof(float)) == 0;
  std::printf("%d tasks ran on the application's threads; the results are %s\n", tasks_done.load(),
              same ? "the same" : "DIFFERENT");
  // The first token sees only itself: its output is its value.
  return same && tasks_done > 0 && std::abs(own[1] - std::sin(1.0f)) < 1e-6f ? 0 : 1;
}

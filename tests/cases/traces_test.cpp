// The lengths of real servers' requests as batches: mixed prefill chunks and decodes at every
// length, where each row must count exactly the keys it sees.
#include <deque>
#include <fstream>
#include <sstream>

#include "support/check.hpp"
#include "support/element.hpp"
#include "support/source_dir.hpp"

namespace rapt::test {
namespace {

struct TracedRequest {
  int32_t context_tokens, generated_tokens;
};

std::vector<TracedRequest> read_trace(const std::string& name) {
  std::ifstream file(std::string(RAPT_SOURCE_DIR "/tests/data/traces/") + name);
  std::vector<TracedRequest> requests;
  std::string line;
  std::getline(file, line);  // the header
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    std::string date, time;
    TracedRequest request{};
    if (fields >> date >> time >> request.context_tokens >> request.generated_tokens)
      requests.push_back(request);
  }
  return requests;
}

struct Step {
  std::vector<int32_t> query_start = {0}, kv_len;
};

// Continuous batching: every running request that has its context decodes one token, and what is
// left of the budget goes to contexts in order of arrival, in chunks.
std::vector<Step> replay(const std::string& trace, int32_t token_budget, size_t num_running,
                         size_t num_steps) {
  struct Running {
    TracedRequest request;
    int32_t cached = 0;
  };
  const std::vector<TracedRequest> requests = read_trace(trace);
  std::deque<TracedRequest> waiting(requests.begin(), requests.end());
  std::vector<Running> running;
  std::vector<Step> steps;
  while (steps.size() < num_steps && !(waiting.empty() && running.empty())) {
    while (running.size() < num_running && !waiting.empty()) {
      running.push_back({waiting.front()});
      waiting.pop_front();
    }
    Step step;
    int32_t left = token_budget;
    for (Running& r : running) {
      const int32_t missing = r.request.context_tokens - r.cached;
      const int32_t tokens = std::min(std::max(missing, 1), left);
      r.cached += tokens;
      left -= tokens;
      step.query_start.push_back(step.query_start.back() + tokens);
      step.kv_len.push_back(r.cached);
    }
    std::erase_if(running, [](const Running& r) {
      return r.cached >= r.request.context_tokens + r.request.generated_tokens;
    });
    steps.push_back(std::move(step));
  }
  return steps;
}

// Every table entry names the same page: only lengths matter to a count.
void expect_counts(const Step& step, const Attention& attention, Context& context, Plan& plan) {
  const AttentionSpec& spec = attention.spec();
  const int64_t page_size = spec.page_size, heads = spec.num_query_heads, dim = spec.head_dim_qk;
  const int32_t longest = *std::max_element(step.kv_len.begin(), step.kv_len.end());
  const int64_t width = (longest + page_size - 1) / page_size;
  const auto requests = static_cast<int64_t>(step.kv_len.size());
  const std::vector<int32_t> table(requests * width, 0);
  const int64_t tokens = step.query_start.back();
  attention.replan(
      plan, {.query_start = step.query_start,
             .kv_len = step.kv_len,
             .page_table = TensorView::contiguous(table.data(), DType::kInt32, {requests, width}),
             .num_pages = 1});
  const auto bytes = static_cast<int64_t>(size_of(spec.dtype));
  GuardedBuffer ones(page_size * dim * bytes), zeros(tokens * heads * dim * bytes),
      out(tokens * heads * dim * bytes), lse(heads * tokens * sizeof(float)),
      workspace(plan.workspace_bytes(), kWorkspaceAlignment);
  for (int64_t i = 0; i < page_size * dim; i++) store(spec.dtype, ones.data() + i * bytes, 1);
  out.fill(0xff), lse.fill(0xff), workspace.fill(0xff);
  DeviceMirror mirror(context);
  for (const GuardedBuffer* buffer : {&ones, &zeros, &out, &lse, &workspace}) mirror.put(*buffer);
  const auto rows = [&](const GuardedBuffer& buffer) {
    return mirror.view(TensorView::contiguous(buffer.data(), spec.dtype, {tokens, heads, dim}));
  };
  const TensorView pool =
      mirror.view(TensorView::contiguous(ones.data(), spec.dtype, {1, page_size, 1, dim}));
  attention.run(
      plan,
      {.q = rows(zeros),
       .k = pool,
       .v = pool,
       .out = rows(out),
       .lse = mirror.view(TensorView::contiguous(lse.data(), DType::kFloat32, {heads, tokens})),
       .workspace = {mirror.address(workspace.data()), workspace.size()}});
  context.synchronize();
  mirror.fetch(out), mirror.fetch(lse);
  mirror.check_bands();
  ASSERT_TRUE(workspace.slack_holds(0xff));
  for (int64_t b = 0; b < requests; b++)
    for (int32_t t = step.query_start[b]; t < step.query_start[b + 1]; t++) {
      const int32_t count = step.kv_len[b] - (step.query_start[b + 1] - 1 - t);
      for (int64_t h = 0; h < heads; h++) {
        ASSERT_NEAR(std::exp(double(lse.as<float>()[h * tokens + t])), count, 0.25)
            << "request " << b << " of " << step.kv_len[b] << " keys, token " << t;
        ASSERT_NEAR(load(spec.dtype, out.data() + (t * heads + h) * dim * bytes), 1, 1e-5);
      }
    }
}

void expect_counts_of_trace(const std::string& trace, int32_t token_budget, size_t num_running) {
  const std::vector<Step> steps = replay(trace, token_budget, num_running, 40);
  ASSERT_GE(steps.size(), 20u);
  AttentionSpec spec = make_spec(finest_dtype(), 2, 1, 8);
  for (const Backend& backend : backends_for(spec)) {
    SCOPED_TRACE(backend.describe());
    const Attention attention(context_of(backend), spec, {.backend = backend.name});
    Plan plan = attention.plan({});
    for (const Step& step : some_of(steps, 3))
      expect_counts(step, attention, context_of(backend), plan);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Traces, conversations_in_steps_of_256_tokens) {
  expect_counts_of_trace("azure_llm_conv_2023_first_160.csv", 256, 48);
}

TEST(Traces, code_completion_in_steps_of_512_tokens) {
  expect_counts_of_trace("azure_llm_code_2023_first_60.csv", 512, 16);
}

}  // namespace
}  // namespace rapt::test

#include "bench/launch.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <random>

#include "bench/memory.hpp"
#include "bench/threads.hpp"
#include "rapt/rapt.hpp"

namespace rapt::bench {
namespace {

constexpr int kLayers = 32;  // runs in a row, the device at rest before the first
constexpr int kReplans = 32;

// A shape's tensors on the device, and its batch.
class DeviceStep {
 public:
  DeviceStep(Context& context, const Shape& shape)
      : attention_(context, spec_of(shape)), shape_(shape), context_(context) {
    for (int32_t b = 0; b <= shape.requests; b++) query_start_.push_back(b * shape.queries);
    kv_len_.assign(static_cast<size_t>(shape.requests), shape.keys);
    batch_.query_start = query_start_;
    batch_.kv_len = kv_len_;
    const int64_t rows = int64_t{shape.requests} * shape.keys;
    if (shape.page_size > 0) {
      const int64_t width = (shape.keys + shape.page_size - 1) / shape.page_size;
      page_table_.resize(static_cast<size_t>(shape.requests * width));
      std::iota(page_table_.begin(), page_table_.end(), 0);
      std::shuffle(page_table_.begin(), page_table_.end(), std::mt19937(3));
      batch_.num_pages = std::ssize(page_table_);
      batch_.page_table =
          TensorView::contiguous(page_table_.data(), DType::kInt32, {shape.requests, width});
      args_.k = tensor({batch_.num_pages, shape.page_size, shape.kv_heads, shape.head_dim});
      args_.v = tensor({batch_.num_pages, shape.page_size, shape.kv_heads, shape.head_dim});
    } else {
      for (int32_t b = 0; b <= shape.requests; b++) kv_start_.push_back(b * shape.keys);
      batch_.kv_start = kv_start_;
      args_.k = tensor({rows, shape.kv_heads, shape.head_dim});
      args_.v = tensor({rows, shape.kv_heads, shape.head_dim});
    }
    args_.q = tensor({batch_.num_tokens(), shape.query_heads, shape.head_dim});
    args_.out = tensor({batch_.num_tokens(), shape.query_heads, shape.head_dim});
    plan_.emplace(attention_.plan(batch_));
    workspace_ = DeviceBuffer(context, plan_->workspace_bytes());
    args_.workspace = {workspace_.data(), workspace_.bytes()};
    run();
    wait();
  }

  void replan() { attention_.replan(*plan_, batch_); }
  void run() { attention_.run(*plan_, args_); }
  void wait() {
    std::byte seen;
    buffers_.back().copy_to_host(&seen, sizeof seen);
  }
  const Plan& plan() const { return *plan_; }
  const char* backend() const { return to_string(attention_.selection().backend); }

 private:
  // Of random numbers.
  TensorView tensor(std::initializer_list<int64_t> sizes) {
    const int64_t bytes =
        std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies()) *
        static_cast<int64_t>(size_of(shape_.dtype));
    const Memory host(bytes);
    fill_random(host.data(), bytes, shape_.dtype, static_cast<uint32_t>(buffers_.size() + 1));
    DeviceBuffer& buffer = buffers_.emplace_back(context_, static_cast<size_t>(bytes));
    buffer.copy_from_host(host.data(), buffer.bytes());
    TensorView view = TensorView::contiguous(buffer.data(), shape_.dtype, sizes);
    view.device = buffer.device();
    return view;
  }

  Attention attention_;
  const Shape& shape_;
  Context& context_;
  std::vector<int32_t> query_start_, kv_len_, kv_start_, page_table_;
  Batch batch_;
  std::vector<DeviceBuffer> buffers_;
  DeviceBuffer workspace_;
  RunArgs args_;
  std::optional<Plan> plan_;
};

double microseconds_of(const std::function<void()>& call) {
  const double start = seconds_now();
  call();
  return (seconds_now() - start) * 1e6;
}

}  // namespace

std::vector<Figure> measure_launch(Context& context, const Shape& of, double seconds) {
  Shape shape = of;
  shape.cold = false;  // each run reads the same keys
  if (shape.layout != KvLayout::kNHD || shape.cache_shape != KvShape::kPagesKv)
    throw Error(ErrorCode::kInvalidArgument,
                shape.describe() + ": launches are measured with NHD pages of pages_kv alone");
  DeviceStep step(context, shape);
  const auto run_layers = [&] {
    for (int i = 0; i < kLayers; i++) step.run();
  };
  const auto after_wait = [&](const std::function<void()>& call) {
    step.wait();
    return microseconds_of(call);
  };
  const std::function<double()> measures[] = {
      [&] {
        step.wait();
        std::vector<double> times;
        for (int i = 0; i < kReplans; i++) times.push_back(microseconds_of([&] { step.replan(); }));
        step.run();  // its plan is on the device again
        return spread_of(std::move(times)).median;
      },
      [&] { return after_wait(run_layers) / kLayers; },
      [&] {
        return after_wait([&] {
          step.replan();
          step.run();
        });
      },
      [&] {
        return after_wait([&] {
                 run_layers();
                 step.wait();
               }) /
               kLayers;
      }};
  const Rounds rounds = interleave(measures, seconds);

  std::vector<Figure> figures;
  for (const char* what : {"replan", "run", "replan and first run", "run and wait"}) {
    const size_t i = figures.size();
    Figure& figure =
        figures.emplace_back(Figure{"launch", shape.describe() + ", " + what, step.backend(),
                                    step.plan().describe(), Measure::kMicroseconds});
    figure.spread = rounds.spread(i);
    figure.rounds = rounds.count();
    figure.microseconds = figure.spread.median;
  }
  return figures;
}

Report run_launch_bench(const LaunchBenchOptions& options) {
  Context context({.device = options.device});
  if (context.device().kind == DeviceKind::kCpu)
    throw Error(ErrorCode::kInvalidArgument,
                "the device is " + options.device + ": nothing is launched there, name a GPU");
  Report report = begin_report(Context().device());
  report.accelerator = context.device().name;
  const auto total = static_cast<int64_t>(options.shapes.size());
  int64_t done = 0;
  for (const Shape& shape : options.shapes) {
    if (options.progress) options.progress(done++, total);
    for (Figure& figure : measure_launch(context, shape, options.seconds))
      report.figures.push_back(std::move(figure));
  }
  return report;
}

}  // namespace rapt::bench

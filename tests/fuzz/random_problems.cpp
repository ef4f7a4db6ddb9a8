// Random (spec, batch) pairs against fp64.
//
//   random_problems --count 20000             the soak: CMake target `soak`
//   random_problems --seed 7 --count 2000     seeds 7 .. 2006
//   random_problems --one 1234                one of them, on every backend, with its figures
//
// Each pair is run by one backend at one ISA and thread count, drawn from the seed too; with --one,
// by all. A pair that no backend accepts is counted as refused. Every pair is run twice, and
// batch-invariant ones also on other threads and one request at a time, bit for bit. Exit code 1 if
// anything was out of bound.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "fuzz/random_problem.hpp"
#include "support/oracle.hpp"

namespace rapt::test {
namespace {

volatile uint64_t current_seed = 0;

// Touching a guard page ends the program; say which seed did it.
void report_fault(int) {
  char text[128];
  const int length = std::snprintf(text, sizeof text, "\nfault: reproduce with --one %llu\n",
                                   static_cast<unsigned long long>(current_seed));
  if (write(STDERR_FILENO, text, length) < 0) _exit(3);
  _exit(2);
}

struct Worst {
  double ratio = 0;
  uint64_t seed = 0;
  std::string backend;
};

// NaN equals itself here.
bool same_bits(const Outcome& a, const Outcome& b) {
  auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
    return x.size() == y.size() &&  // no lse: no memory either, which memcmp() must not be given
           (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
  };
  return same(a.out, b.out) && same(a.lse, b.lse);
}

// The request alone must give the bits it has in the batch.
std::string alone_differs(const Problem& problem, const Outcome& outcome, const Backend& backend) {
  const int64_t tokens = problem.num_tokens(), heads = problem.spec.num_query_heads;
  const int64_t row = heads * problem.spec.dim_vo();
  int64_t start = 0;
  for (size_t b = 0; b < problem.requests.size(); b++) {
    Problem single = problem;
    single.requests = {problem.requests[b]};
    const Outcome alone = run(single, backend);
    const int64_t query_len = problem.requests[b].query_len;
    bool same = std::equal(alone.out.begin(), alone.out.end(), outcome.out.begin() + start * row);
    for (int64_t h = 0; h < heads && problem.spec.needs_lse; h++)
      same &= std::equal(alone.lse.begin() + h * query_len, alone.lse.begin() + (h + 1) * query_len,
                         outcome.lse.begin() + h * tokens + start);
    if (!same) return "request " + std::to_string(b) + " alone has other bits than in the batch";
    start += query_len;
  }
  return "";
}

// Empty, or what is wrong.
std::string check(const Problem& problem, Tensors& tensors, const Expected& expected,
                  const Backend& backend, double& ratio) {
  try {
    const Outcome outcome = run(tensors, backend);
    const std::string wrong = verdict(problem, expected, outcome, &ratio);
    if (!wrong.empty()) return wrong + "\n  plan: " + outcome.plan;
    if (!same_bits(run(tensors, backend), outcome)) return "other bits when run again";
    if (!problem.spec.batch_invariant) return "";
    Backend other = backend;
    other.num_threads = 1 + static_cast<int32_t>(problem.seed % 7);
    if (!same_bits(run(tensors, other), outcome)) return "other bits than on " + other.describe();
    return alone_differs(problem, outcome, backend);
  } catch (const Error& error) {
    return error.what();
  }
}

struct Tally {
  int64_t run = 0, refused = 0, wrong = 0;
  Worst worst;
};

void run_seed(uint64_t seed, bool all_backends, Tally& tally) {
  current_seed = seed;
  const Problem problem = random_problem(seed);
  Tensors tensors(problem);
  std::vector<Backend> backends = backends_for(problem.spec, tensors.select_options(Backend{}));
  if (backends.empty()) {
    tally.refused++;
    return;
  }
  if (!all_backends) {
    // The reference takes its turn, but not where another backend accepts and speed matters.
    const size_t first = backends.size() > 1 && seed % 16 ? 1 : 0;
    const auto pick = first + static_cast<size_t>(uniform_of(seed, 99) * (backends.size() - first));
    backends = {backends[pick]};
  }
  const Expected expected = expect(problem, tensors.values());
  for (const Backend& backend : backends) {
    double ratio = 0;
    const std::string wrong = check(problem, tensors, expected, backend, ratio);
    tally.run++;
    if (all_backends)
      std::printf("%-24s error / bound %.3f %s\n", backend.describe().c_str(), ratio,
                  wrong.c_str());
    if (ratio > tally.worst.ratio) tally.worst = {ratio, seed, backend.describe()};
    if (wrong.empty()) continue;
    tally.wrong++;
    std::printf("WRONG --one %llu on %s: %s\n  %s\n", static_cast<unsigned long long>(seed),
                backend.describe().c_str(), wrong.c_str(), problem.describe().c_str());
  }
}

}  // namespace
}  // namespace rapt::test

int main(int argc, char** argv) {
  using namespace rapt::test;
  CLI::App app{"Random attention problems against an fp64 oracle"};
  uint64_t first_seed = 1, one = 0;
  int64_t count = 2000, max_wrong = 20;
  app.add_option("--seed", first_seed, "The first seed")->capture_default_str();
  app.add_option("--count", count, "How many seeds")->capture_default_str();
  app.add_option("--max-wrong", max_wrong, "Stop after so many failures")->capture_default_str();
  const CLI::Option* single = app.add_option("--one", one, "One seed, on every backend");
  CLI11_PARSE(app, argc, argv);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, report_fault);

  Tally tally;
  if (*single) {
    std::printf("%s\n", random_problem(one).describe().c_str());
    run_seed(one, true, tally);
  } else {
    for (int64_t n = 0; n < count && tally.wrong < max_wrong; n++)
      run_seed(first_seed + static_cast<uint64_t>(n), false, tally);
  }
  std::printf(
      "%lld pairs: %lld out of bound, %lld refused by every backend; worst error / bound "
      "%.3f (--one %llu, %s)\n",
      static_cast<long long>(tally.run + tally.refused), static_cast<long long>(tally.wrong),
      static_cast<long long>(tally.refused), tally.worst.ratio,
      static_cast<unsigned long long>(tally.worst.seed), tally.worst.backend.c_str());
  return tally.wrong ? 1 : 0;
}

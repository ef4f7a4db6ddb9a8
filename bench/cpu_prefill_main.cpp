// cpu_prefill [--isa NAME] [--dtype D] [--threads N] [--rounds N] [--dim N] [--queries N]
// [--keys N,N,...] [--causal]: GFLOP/s of the prefill kernels beside the processor's peaks,
// measured in interleaved rounds; median [lowest .. highest].
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "bench/cpu_limits.hpp"
#include "bench/cpu_prefill.hpp"

using namespace rapt;
using namespace rapt::bench;

namespace {

void print(const std::string& name, std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  std::printf("%-40s %8.1f GFLOP/s [%.1f .. %.1f]\n", name.c_str(), rates[rates.size() / 2] / 1e9,
              rates.front() / 1e9, rates.back() / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  PrefillShape base;
  CpuIsa isa = host_cpu().isa;
  int threads = 2, rounds = 7;
  std::string keys = "512,1024,2048,4096,8192";
  for (int i = 1; i < argc; i++) {
    const std::string flag = argv[i];
    if (flag == "--causal") {
      base.causal = true;
      continue;
    }
    if (++i == argc) return 2;
    const std::string value = argv[i];
    if (flag == "--isa")
      isa = parse_cpu_isa(value).value();
    else if (flag == "--dtype")
      base.dtype = parse_dtype(value).value();
    else if (flag == "--threads")
      threads = std::stoi(value);
    else if (flag == "--rounds")
      rounds = std::stoi(value);
    else if (flag == "--dim")
      base.head_dim = std::stoi(value);
    else if (flag == "--queries")
      base.query_len = std::stoi(value);
    else if (flag == "--keys")
      keys = value;
    else
      return 2;
  }
  std::vector<PrefillShape> shapes;
  std::stringstream list(keys);
  for (std::string item; std::getline(list, item, ',');) {
    shapes.push_back(base);
    shapes.back().kv_len = std::stoi(item);
  }
  std::vector<PrefillBench> benches;
  for (const PrefillShape& shape : shapes)
    benches.emplace_back(shape, cpu::kernels(isa), threads).run();

  constexpr Unit kUnits[] = {Unit::kFma, Unit::kBf16Dot, Unit::kAmxTile};
  std::vector<std::vector<double>> peaks(std::size(kUnits)), rates(shapes.size());
  for (int round = 0; round < rounds; round++) {
    for (size_t u = 0; u < std::size(kUnits); u++)
      if (has(kUnits[u])) peaks[u].push_back(peak_flops(kUnits[u], threads, 0.05));
    for (size_t s = 0; s < shapes.size(); s++)
      rates[s].push_back(shapes[s].flops() / benches[s].run());
  }
  for (size_t u = 0; u < std::size(kUnits); u++)
    if (has(kUnits[u])) print(std::string(bench::to_string(kUnits[u])) + " peak", peaks[u]);
  for (size_t s = 0; s < shapes.size(); s++)
    print(std::string(rapt::to_string(isa)) + " " + rapt::to_string(base.dtype) + " D " +
              std::to_string(base.head_dim) + (base.causal ? " causal " : " ") +
              std::to_string(shapes[s].query_len) + " x " + std::to_string(shapes[s].kv_len),
          rates[s]);
}

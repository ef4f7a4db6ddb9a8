// What a run of the benchmark found, as data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/rounds.hpp"
#include "rapt/device.hpp"

namespace rapt::bench {

// Rates are per second; GB/s and GFLOP/s in units of 1e9. Times are microseconds.
enum class Measure : uint8_t { kGigaflops, kGigabytes, kTokens, kMicroseconds };
// "GFLOP/s", "GB/s", "tokens/s", "us".
const char* to_string(Measure measure);

// What the machine does at most, in the units of the figures beside it.
struct Limit {
  std::string name;
  Measure measure{};
  Spread spread;
};

// A figure with the limits that were measured in the same rounds.
struct Figure {
  std::string phase;  // "prefill", "decode", "plan", "launch"
  std::string shape;
  std::string backend;
  std::string plan;
  Measure measure{};
  Spread spread{};
  int64_t rounds = 0;
  double microseconds = 0;     // of what is timed: median
  std::string timed = "step";  // or "token"

  struct Beside {
    Limit limit;
    double share = 0;  // of the limit: median over rounds
  };
  std::vector<Beside> beside{};
};

struct Report {
  std::string version, date, cpu_model;
  std::string accelerator;  // its name, where that is what is measured
  DeviceInfo device;        // as it was used: ISA level and threads
  double load_average = 0;  // of the last minute, as the run began
  std::vector<Limit> limits;
  std::vector<Figure> figures;
};

// Version, date and machine filled in, and the load before anything is measured.
Report begin_report(const DeviceInfo& device);

}  // namespace rapt::bench

#include "bench/report.hpp"

#include <cstdlib>
#include <ctime>
#include <fstream>

#include "rapt/version.hpp"

namespace rapt::bench {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  return "unknown";
}

// ISO 8601, UTC.
std::string date_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

}  // namespace

const char* to_string(Measure measure) {
  switch (measure) {
    case Measure::kGigaflops:
      return "GFLOP/s";
    case Measure::kGigabytes:
      return "GB/s";
    case Measure::kTokens:
      return "tokens/s";
    case Measure::kMicroseconds:
      return "us";
  }
  return "unknown";
}

Report begin_report(const DeviceInfo& device) {
  Report report;
  report.version = version();
  report.date = date_now();
  report.cpu_model = cpu_model();
  report.device = device;
  if (getloadavg(&report.load_average, 1) != 1) report.load_average = -1;
  return report;
}

}  // namespace rapt::bench

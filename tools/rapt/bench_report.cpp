#include "bench_report.hpp"

#include <cstdio>
#include <utility>

#include "console.hpp"
#include "rapt/error.hpp"

namespace rapt_tool {
namespace {

using rapt::bench::Figure;
using rapt::bench::Limit;
using rapt::bench::Report;

Json to_json(const rapt::bench::Spread& spread) {
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
}

Json to_json(const Limit& limit) {
  Json json{{"name", limit.name}, {"unit", to_string(limit.measure)}};
  json.update(to_json(limit.spread));
  return json;
}

Json to_json(const Report& report) {
  Json limits = Json::array(), figures = Json::array();
  for (const Limit& limit : report.limits) limits.push_back(to_json(limit));
  for (const Figure& figure : report.figures) {
    Json json{{"phase", figure.phase},
              {"shape", figure.shape},
              {"backend", figure.backend},
              {"plan", figure.plan},
              {"unit", to_string(figure.measure)}};
    json.update(to_json(figure.spread));
    json["rounds"] = figure.rounds;
    json["microseconds"] = figure.microseconds;
    json["beside"] = Json::array();
    for (const Figure::Beside& beside : figure.beside) {
      Json limit = to_json(beside.limit);
      limit["share"] = beside.share;
      json["beside"].push_back(limit);
    }
    figures.push_back(json);
  }
  return {{"rapt", report.version},
          {"date", report.date},
          {"machine",
           {{"cpu", report.cpu_model},
            {"isa", to_string(report.device.isa)},
            {"threads", report.device.num_cores},
            {"l1_bytes", report.device.l1_bytes},
            {"l2_bytes", report.device.l2_bytes},
            {"l3_bytes", report.device.l3_bytes},
            {"load_average", report.load_average},
            {"accelerator", report.accelerator}}},
          {"limits", limits},
          {"figures", figures}};
}

std::string to_text(const rapt::bench::Spread& spread, rapt::bench::Measure measure) {
  char text[96];
  std::snprintf(text, sizeof text, "%8.1f %s (%.1f - %.1f)", spread.median, to_string(measure),
                spread.low, spread.high);
  return text;
}

void print(const Report& report) {
  std::printf("rapt %s on %s: %s, %d threads, L2 %lld KiB, L3 %lld KiB, load %.2f, %s\n",
              report.version.c_str(), report.cpu_model.c_str(), to_string(report.device.isa),
              report.device.num_cores, static_cast<long long>(report.device.l2_bytes >> 10),
              static_cast<long long>(report.device.l3_bytes >> 10), report.load_average,
              report.date.c_str());
  if (!report.accelerator.empty()) std::printf("attention on %s\n", report.accelerator.c_str());
  std::printf("Each figure: median (lowest - highest round); shares: median over rounds.\n");
  if (!report.limits.empty()) std::printf("\nlimits\n");
  for (const Limit& limit : report.limits)
    std::printf("  %-34s %s\n", limit.name.c_str(), to_text(limit.spread, limit.measure).c_str());
  std::string phase;
  for (const Figure& figure : report.figures) {
    if (figure.phase != phase) std::printf("\n%s\n", figure.phase.c_str());
    phase = figure.phase;
    // The plan's line begins with the backend's name.
    std::printf("  %s\n    %s\n    %s", figure.shape.c_str(), figure.plan.c_str(),
                to_text(figure.spread, figure.measure).c_str());
    if (figure.measure != rapt::bench::Measure::kMicroseconds)
      std::printf(", %.0f us a %s", figure.microseconds, figure.timed.c_str());
    std::printf(", %lld rounds\n", static_cast<long long>(figure.rounds));
    for (const Figure::Beside& beside : figure.beside)
      std::printf("      %5.1f %% of %-24s %s\n", beside.share * 100, beside.limit.name.c_str(),
                  to_text(beside.limit.spread, beside.limit.measure).c_str());
  }
}

}  // namespace

ReportWriter::ReportWriter(std::string out, bool as_json)
    : path_(std::move(out)), as_json_(as_json) {
  if (path_.empty()) return;
  file_.open(path_);
  if (!file_)
    throw rapt::Error(rapt::ErrorCode::kIo, "--out is \"" + path_ + "\": cannot be written");
}

void ReportWriter::write(const Report& report) {
  if (as_json_)
    print_json(to_json(report));
  else
    print(report);
  if (path_.empty()) return;
  file_ << to_json(report).dump(2) << '\n';
  if (!file_.flush())
    throw rapt::Error(rapt::ErrorCode::kIo, "--out is \"" + path_ + "\": could not be written");
}

}  // namespace rapt_tool

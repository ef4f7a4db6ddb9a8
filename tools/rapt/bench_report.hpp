// A benchmark's report on stdout and, if asked for, in a file.
#pragma once

#include <fstream>
#include <string>

#include "bench/report.hpp"

namespace rapt_tool {

class ReportWriter {
 public:
  // Opens the file before minutes of measuring, so that a wrong path costs none of them. `out` may
  // be empty.
  ReportWriter(std::string out, bool as_json);

  // stdout gets text, or one JSON object; the file gets the JSON.
  void write(const rapt::bench::Report& report);

 private:
  std::string path_;
  bool as_json_;
  std::ofstream file_;
};

}  // namespace rapt_tool

// The commands of `rapt`. Each is one file with one function here: it adds its subcommand to the
// parser, and the subcommand's callback does the work, prints to stdout and returns, or throws
// rapt::Error, whose code decides the exit code (exit_code.hpp).
#pragma once

#include <CLI/CLI.hpp>

namespace rapt_tool {

void add_bench(CLI::App& app);
void add_bench_generate(CLI::App& bench);  // below `rapt bench`
void add_devices(CLI::App& app);
void add_explain(CLI::App& app);
void add_generate(CLI::App& app);
void add_pack(CLI::App& app);
void add_run(CLI::App& app);

}  // namespace rapt_tool

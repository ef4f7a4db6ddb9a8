// rapt: the attention layer from the command line.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>

#include "commands.hpp"
#include "exit_code.hpp"
#include "rapt/version.hpp"

namespace {

// A result that did not reach its reader (a full disk, a closed pipe) is not done.
int after_writing(int code) {
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::cerr << "rapt: the output cannot be written: is the disk full, or stdout closed?\n";
  return code == rapt_tool::kDone ? rapt_tool::kFailed : code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace rapt_tool;
  CLI::App app("The attention layer of LLM serving.", "rapt");
  app.set_version_flag("--version", std::string("rapt ") + rapt::version());
  app.require_subcommand(0, 1);  // none is caught below, a wrong one is named by the parser
  app.footer(
      "Examples:\n"
      "  rapt devices\n"
      "  rapt explain --device h100 --head-dim 128 --kv-dtype fp8_e4m3 --sinks\n"
      "  rapt generate --model models/stories260K/stories260K.bin --temperature 0\n"
      "Each command has its own --help. Exit code: 0 done, 2 bad arguments or input, 1 anything "
      "else.");
  add_bench(app);
  add_devices(app);
  add_explain(app);
  add_generate(app);
  add_pack(app);
  add_run(app);
  try {
    app.parse(argc, argv);
    if (!app.get_subcommands().empty()) return after_writing(kDone);
    std::cerr << app.help();
    return kBadInput;
  } catch (const CLI::ParseError& error) {
    // Help and the version come this way too, with exit code 0.
    return after_writing(app.exit(error) == 0 ? kDone : kBadInput);
  } catch (const rapt::Error& error) {
    std::cerr << "rapt: " << error.what() << '\n';
    return exit_code(error.code());
  } catch (const std::bad_alloc&) {
    std::cerr << "rapt: out of memory: ask for less at a time\n";
    return kFailed;
  } catch (const std::exception& error) {
    std::cerr << "rapt: " << error.what() << '\n';
    return kFailed;
  }
}

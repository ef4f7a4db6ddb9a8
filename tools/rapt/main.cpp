// rapt: the attention layer from the command line.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>
#include <iostream>
#include <new>

#include "commands.hpp"
#include "console.hpp"
#include "exit_code.hpp"
#include "rapt/version.hpp"

namespace {

// Stdout is a pipe whose reader has seen enough, as `head` has.
bool reader_left() {
  pollfd out{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

// A result that did not reach its reader (a full disk, a closed pipe) is not done. To a reader that
// left nothing is said, as is the custom.
int after_writing(int code) {
  if (rapt_tool::flush_output()) return code;
  if (!reader_left())
    std::cerr << "rapt: the output cannot be written: is the disk full, or stdout closed?\n";
  return code == rapt_tool::kDone ? rapt_tool::kFailed : code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace rapt_tool;
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an exit code, not the end by a signal
  CLI::App app("The attention layer of LLM serving.", "rapt");
  app.set_version_flag("--version", std::string("rapt ") + rapt::version());
  app.require_subcommand(0, 1);  // none is caught below, a wrong one is named by the parser
  app.footer(
      "Examples:\n"
      "  rapt devices\n"
      "  rapt explain --device h100 --head-dim 128 --sinks\n"
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
  } catch (const OutputLost&) {
    return after_writing(kFailed);
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

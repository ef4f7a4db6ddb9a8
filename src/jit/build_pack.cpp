#include "jit/build_pack.hpp"

#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/check.hpp"
#include "core/thread_pool.hpp"

namespace rapt::jit {
namespace {

// A key determines its text: which of them is taken does not matter.
std::vector<const PackUnit*> one_per_key(std::span<const PackUnit> units) {
  std::vector<const PackUnit*> distinct;
  std::unordered_set<std::string_view> known;
  for (const PackUnit& unit : units)
    if (known.insert(unit.unit.key).second) distinct.push_back(&unit);
  return distinct;
}

// Compiling takes minutes: what is known to fail then should fail now.
void check_place(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder, ignored))
    fail(ErrorCode::kIo, "pack ", path.string(), ": there is no folder ", folder.string(),
         ": make it first");
  if (std::filesystem::is_directory(path, ignored))
    fail(ErrorCode::kIo, "pack ", path.string(), " is a folder: must be the name of a file");
}

// What the threads share.
class Build {
 public:
  Build(std::vector<const PackUnit*> units, const Compiler& compiler,
        const BuildPackOptions& options)
      : units_(std::move(units)), compiler_(compiler), options_(options) {}

  void run() {
    report("");
    ThreadPool(options_.num_threads).run(num_units(), [&](int32_t i) { compile(*units_[i]); });
    if (failure_) std::rethrow_exception(failure_);
    if (problems_.empty()) return;
    std::string text;
    for (const auto& [key, problem] : problems_) text += concat("\n  ", key, ": ", problem);
    fail(ErrorCode::kInternal, problems_.size(), " problems of kernels as ", compiler_.identity(),
         " compiles them, so no pack is written: name another version in RAPT_NVRTC, and please ",
         "report it", text);
  }

  void write(const std::filesystem::path& path) const { writer_.write(path); }

 private:
  int32_t num_units() const { return static_cast<int32_t>(units_.size()); }

  void report(std::string_view key) const {
    if (options_.progress) options_.progress(done_, num_units(), key);
  }

  void compile(const PackUnit& unit) {
    try {
      {
        const std::lock_guard lock(mutex_);
        if (failure_) return;
      }
      const CompiledKernel kernel = compiler_.compile(unit.unit);
      const std::lock_guard lock(mutex_);
      for (std::string& problem : problems(kernel.resources))
        problems_.emplace(unit.unit.key, std::move(problem));
      writer_.add(unit.unit, kernel, unit.dynamic_shared_bytes);
      done_++;
      report(unit.unit.key);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  const std::vector<const PackUnit*> units_;
  const Compiler& compiler_;
  const BuildPackOptions& options_;

  std::mutex mutex_;  // of what follows
  int32_t done_ = 0;
  PackWriter writer_;
  std::multimap<std::string, std::string> problems_;  // by key
  std::exception_ptr failure_;
};

}  // namespace

void build_pack(const std::filesystem::path& path, std::span<const PackUnit> units,
                const Compiler& compiler, const BuildPackOptions& options) {
  check_place(path);
  Build build(one_per_key(units), compiler, options);
  build.run();
  build.write(path);
}

}  // namespace rapt::jit

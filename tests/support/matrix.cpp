#include "support/matrix.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <tuple>

namespace rapt::test {

std::string Backend::describe() const {
  if (device != "cpu")
    return name + " on " + device + (table_on_device.value_or(false) ? ", as its table" : "");
  return name + (isa ? std::string(" ") + to_string(*isa) : "") + " x" +
         std::to_string(num_threads);
}

Context& context_of(const Backend& backend) {
  static std::map<std::tuple<std::string, int, int32_t>, std::unique_ptr<Context>> contexts;
  const int isa = backend.isa ? static_cast<int>(*backend.isa) : -1;
  std::unique_ptr<Context>& context = contexts[{backend.device, isa, backend.num_threads}];
  if (!context) {
    // Each test is a process, which compiles what none before it has.
    if (on_emulator()) setenv("RAPT_CACHE_DIR", KERNEL_CACHE, 0);
    ContextOptions options;
    options.device = backend.device;
    options.num_threads = backend.num_threads;
    options.isa = backend.isa;
    context = std::make_unique<Context>(std::move(options));
  }
  return *context;
}

std::string test_device_or(const char* otherwise) {
  const char* named = std::getenv("RAPT_TEST_DEVICE");
  return named && *named ? named : otherwise;
}

const std::string& test_device() {
  static const std::string device = test_device_or("cpu");
  return device;
}

bool on_cpu() {
  return test_device() == "cpu";
}

bool on_emulator() {
  return test_device().starts_with("emulated");
}

void say_emulated(const char* what, long long part, long long whole) {
  static std::set<std::tuple<std::string, long long, long long>> said;
  if (said.insert({what, part, whole}).second)
    std::printf("emulated: a %s of %lld in place of %lld\n", what, part, whole);
}

std::vector<DType> dtypes() {
  if (on_cpu()) return {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  return some_of<DType>({DType::kBFloat16, DType::kFloat16});
}

DType finest_dtype() {
  return on_cpu() ? DType::kFloat32 : on_emulator() ? DType::kBFloat16 : DType::kFloat16;
}

std::vector<CpuIsa> host_isas() {
  std::vector<CpuIsa> isas;
  for (int isa = 0; isa <= static_cast<int>(host_cpu().isa); isa++)
    isas.push_back(static_cast<CpuIsa>(isa));
  return isas;
}

std::vector<Backend> backends_for(const AttentionSpec& spec, const SelectOptions& options) {
  std::vector<Backend> backends;
  if (!on_cpu()) {
    const Backend gpu{.name = "", .device = test_device()};
    for (const BackendVerdict& verdict : explain(spec, context_of(gpu).device(), options))
      for (const bool table_on_device : {false, true})
        if (verdict.accepted &&
            (spec.is_paged() ? table_on_device || !on_emulator() : !table_on_device))
          backends.push_back({.name = to_string(verdict.backend),
                              .device = gpu.device,
                              .table_on_device = table_on_device});
    return backends;
  }
  const std::vector<CpuIsa> isas = host_isas();
  for (const BackendVerdict& verdict : explain(spec, host_cpu(), options))
    if (verdict.accepted && verdict.backend == BackendId::kReference)
      backends.push_back({to_string(verdict.backend), std::nullopt, 1});
  for (CpuIsa isa : isas) {
    DeviceInfo device = host_cpu();
    device.isa = isa;
    for (const BackendVerdict& verdict : explain(spec, device, options)) {
      if (!verdict.accepted || verdict.backend == BackendId::kReference) continue;
      backends.push_back({to_string(verdict.backend), isa, 2});
      if (isa != isas.back()) continue;
      backends.push_back({to_string(verdict.backend), isa, 1});
      backends.push_back({to_string(verdict.backend), isa, 3});
    }
  }
  return backends;
}

}  // namespace rapt::test

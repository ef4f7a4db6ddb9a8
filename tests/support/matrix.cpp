#include "support/matrix.hpp"

#include <map>
#include <memory>
#include <tuple>

namespace rapt::test {

std::string Backend::describe() const {
  if (device != "cpu") return name + " on " + device;
  return name + (isa ? std::string(" ") + to_string(*isa) : "") + " x" +
         std::to_string(num_threads);
}

Context& context_of(const Backend& backend) {
  static std::map<std::tuple<std::string, int, int32_t>, std::unique_ptr<Context>> contexts;
  const int isa = backend.isa ? static_cast<int>(*backend.isa) : -1;
  std::unique_ptr<Context>& context = contexts[{backend.device, isa, backend.num_threads}];
  if (!context) {
    ContextOptions options;
    options.device = backend.device;
    options.num_threads = backend.num_threads;
    options.isa = backend.isa;
    context = std::make_unique<Context>(std::move(options));
  }
  return *context;
}

std::vector<CpuIsa> host_isas() {
  std::vector<CpuIsa> isas;
  for (int isa = 0; isa <= static_cast<int>(host_cpu().isa); isa++)
    isas.push_back(static_cast<CpuIsa>(isa));
  return isas;
}

std::vector<Backend> backends_for(const AttentionSpec& spec, const SelectOptions& options) {
  std::vector<Backend> backends;
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

#include "rapt/select.hpp"

#include "select/judge.hpp"

namespace rapt {

Selection select(const AttentionSpec& spec, const DeviceInfo& device,
                 const SelectOptions& options) {
  return select({spec, device, options}, built_here);
}

std::vector<BackendVerdict> explain(const AttentionSpec& spec, const DeviceInfo& device,
                                    const SelectOptions& options) {
  std::vector<BackendVerdict> verdicts;
  for (Judgement& judgement : judge({spec, device, options}, built_here))
    verdicts.push_back(std::move(judgement.verdict));
  return verdicts;
}

}  // namespace rapt

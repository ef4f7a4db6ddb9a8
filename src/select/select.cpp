#include "rapt/select.hpp"

#include "core/check.hpp"

namespace rapt {

const char* to_string(BackendId id) {
  constexpr const char* kNames[] = {"flash_attention", "flashinfer",      "portable", "flex",
                                    "turboquant",      "paged_attention", "cpu",      "reference"};
  return kNames[static_cast<int>(id)];
}

std::optional<BackendId> parse_backend(std::string_view name) {
  for (int id = 0; id < 8; id++)
    if (name == to_string(static_cast<BackendId>(id))) return static_cast<BackendId>(id);
  return std::nullopt;
}

Selection select(const AttentionSpec& spec, const DeviceInfo& device,
                 const SelectOptions& options) {
  validate(spec);
  const bool any_dim = spec.head_dim_qk % 8 || spec.dim_vo() % 8;
  Selection selection;
  selection.backend = any_dim ? BackendId::kReference : BackendId::kCpu;
  if (!options.backend.empty() && options.backend != "auto") {
    const std::optional<BackendId> id = parse_backend(options.backend);
    check(id.has_value(), "backend is \"", options.backend, "\": unknown");
    selection.backend = *id;
  }
  if (device.kind != DeviceKind::kCpu || selection.backend < BackendId::kCpu)
    fail(ErrorCode::kUnsupported, "not built");
  selection.layout = options.layout.value_or(KvLayout::kNHD);
  selection.page_size = spec.page_size;
  return selection;
}

}  // namespace rapt

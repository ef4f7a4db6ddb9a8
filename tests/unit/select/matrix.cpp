#include "matrix.hpp"

#include <vector>

#include "select/names.hpp"

namespace rapt {
namespace {

using Line = std::vector<std::string>;

std::string row_of(const Line& cells) {
  std::string text = "|";
  for (const std::string& cell : cells) text += " " + cell + " |";
  return text + "\n";
}

std::string yes(bool value) {
  return value ? "yes" : "no";
}

std::string compute_capabilities(const Capability& row) {
  if (row.device == DeviceKind::kCpu) return "CPU";
  const IntRange& range = row.compute_capability;
  if (range.max == kUnbounded)
    return range.min == 0 ? "any GPU" : compute_capability_name(range.min) + " or more";
  return compute_capability_name(range.min) + "-" + compute_capability_name(range.max);
}

std::string head_dims(const Capability& row) {
  const HeadDims& dims = row.head_dims;
  std::string text = dims.listed.empty() ? to_string(dims.equal) : list_of(dims.listed);
  if (dims.multiple_of > 1) text += concat(", multiples of ", dims.multiple_of);
  if (dims.power_of_two) text += ", powers of two";
  for (const HeadDimPair& pair : dims.unequal)
    text += concat("; (", to_string(pair.qk), ", ", to_string(pair.vo), ")");
  return text;
}

std::string cache_formats(const Capability& row) {
  std::string text = row.unquantised_kv ? "the query dtype's" : "";
  row.quantised_kv.for_each([&](KvFormat format) {
    text += (text.empty() ? "" : ", ") + std::string(to_string(format));
  });
  return text;
}

std::string scales(const Capability& row) {
  return list_of(row.kv_scales) + (row.scales_unquantised_kv ? ", any cache" : "");
}

std::string layout(const Capability& row) {
  if (!row.required_layout) return "any";
  const IntRange& on = row.layout_required_on;
  const bool everywhere = on.max == kUnbounded;
  return to_string(*row.required_layout) + (everywhere
                                                ? std::string()
                                                : concat(" on ", compute_capability_name(on.min),
                                                         "-", compute_capability_name(on.max)));
}

const char* window(const Capability& row) {
  switch (row.window) {
    case WindowSupport::kNone:
      return "none";
    case WindowSupport::kLeft:
      return "left";
    case WindowSupport::kSymmetric:
      return "symmetric";
    case WindowSupport::kBothSides:
      return "both sides";
    case WindowSupport::kAny:
      return "any";
  }
  return "";
}

const char* context_parallel(const Capability& row) {
  switch (row.context_parallel) {
    case ContextParallel::kNo:
      return "no";
    case ContextParallel::kCausal:
      return "causal";
    case ContextParallel::kAny:
      return "yes";
  }
  return "";
}

template <typename Cells>
std::string table(const Line& head, const Cells& cells) {
  std::string text = row_of(head) + row_of(Line(head.size(), "---"));
  for (const Capability& row : capabilities()) text += row_of(cells(row));
  return text;
}

}  // namespace

std::string capability_matrix() {
  const std::string data = table(
      {"kernels", "backend", "compute capability", "group", "query dtype", "cache format", "scales",
       "page size", "no cache", "head dims", "layout", "graphs", "built", "facts from"},
      [](const Capability& row) {
        return Line{row.name,
                    to_string(row.backend),
                    compute_capabilities(row),
                    to_string(row.group),
                    list_of(row.dtypes),
                    cache_formats(row),
                    scales(row),
                    to_string(row.page_sizes),
                    yes(row.ragged),
                    head_dims(row),
                    layout(row),
                    to_string(row.graph),
                    yes(row.built),
                    row.source};
      });
  const std::string options =
      table({"kernels", "kinds", "decoder not causal", "window", "softcap", "ALiBi", "sinks",
             "custom mask", "lse", "batch invariant", "context parallel", "decode only"},
            [](const Capability& row) {
              return Line{row.name,
                          list_of(row.kinds),
                          yes(row.non_causal_decoder),
                          window(row),
                          yes(row.softcap),
                          yes(row.alibi),
                          yes(row.sinks),
                          yes(row.custom_mask),
                          yes(row.lse),
                          yes(row.batch_invariant),
                          context_parallel(row),
                          yes(row.decode_only)};
            });
  return data + "\n" + options;
}

}  // namespace rapt

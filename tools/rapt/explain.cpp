// rapt explain: which backend takes a problem on a device, and why not the others.
#include <strings.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "console.hpp"
#include "exit_code.hpp"
#include "options.hpp"
#include "rapt/rapt.hpp"

namespace rapt_tool {
namespace {

// As typed; empty text and unset optionals stand for the defaults.
struct Arguments {
  std::string device = "cpu", dtype = "bfloat16", kv_dtype = "auto", kv_scales, layout;
  std::string kind = "decoder", window, mask = "auto", backend = "auto";
  int32_t head_dim = 128, head_dim_vo = 0, query_heads = 32, kv_heads = 8;
  std::optional<int32_t> page_size, flash_attention_version;
  int32_t manager_page_size = 0, context_parallel_size = 1;
  float softcap = 0;
  bool alibi = false, sinks = false, lse = false, batch_invariant = false, json = false;
};

constexpr int32_t kPageSize = 16;

rapt::KvScales default_scales(rapt::KvFormat format) {
  switch (format) {
    case rapt::KvFormat::kInt8PerTokenHead:
    case rapt::KvFormat::kFp8PerTokenHead:
    case rapt::KvFormat::kInt4PerTokenHead:
      return rapt::KvScales::kPerTokenHead;
    default:
      return rapt::KvScales::kNone;
  }
}

void apply_mask(const std::string& mask, rapt::AttentionSpec& spec) {
  if (mask == "causal")
    spec.causal = true;
  else if (mask == "full")
    spec.causal = false;
  else if (mask == "custom")
    spec.custom_mask = true;
}

rapt::AttentionSpec spec_of(const Arguments& arguments) {
  rapt::AttentionSpec spec;
  spec.num_query_heads = arguments.query_heads;
  spec.num_kv_heads = arguments.kv_heads;
  spec.head_dim_qk = arguments.head_dim;
  spec.head_dim_vo = arguments.head_dim_vo;
  spec.dtype = parse_dtype_option("--dtype", arguments.dtype);
  spec.kv_format = parse_kv_format_option("--kv-dtype", arguments.kv_dtype);
  spec.kind = parse_kind_option("--kind", arguments.kind);
  const bool cached = spec.kind == rapt::AttentionKind::kDecoder ||
                      spec.kind == rapt::AttentionKind::kEncoderDecoder;
  spec.page_size = arguments.page_size.value_or(cached ? kPageSize : 0);
  if (!arguments.window.empty()) spec.window = parse_window_option("--window", arguments.window);
  spec.softcap = arguments.softcap;
  spec.alibi = arguments.alibi;
  spec.sinks = arguments.sinks;
  spec.kv_scales = arguments.kv_scales.empty()
                       ? default_scales(spec.kv_format)
                       : parse_kv_scales_option("--kv-scales", arguments.kv_scales);
  spec.needs_lse = arguments.lse;
  spec.batch_invariant = arguments.batch_invariant;
  apply_mask(arguments.mask, spec);
  return spec;
}

rapt::SelectOptions options_of(const Arguments& arguments) {
  rapt::SelectOptions options;
  options.backend = arguments.backend;
  options.flash_attention_version = arguments.flash_attention_version;
  if (!arguments.layout.empty()) options.layout = parse_layout_option("--layout", arguments.layout);
  options.manager_page_size = arguments.manager_page_size;
  options.context_parallel_size = arguments.context_parallel_size;
  return options;
}

// "bfloat16, cache fp8_e4m3, 32 query heads on 8 KV heads, head dims 128, pages of 16, causal, ..."
std::string describe(const rapt::AttentionSpec& spec) {
  std::string text = std::string(to_string(spec.kind)) + ", " + to_string(spec.dtype);
  if (spec.is_paged())
    text += std::string(", cache ") + to_string(spec.cache_format()) + " in pages of " +
            std::to_string(spec.page_size);
  text += ", " + std::to_string(spec.num_query_heads) + " query heads on " +
          std::to_string(spec.num_kv_heads) + " KV heads, head dim " +
          std::to_string(spec.head_dim_qk);
  if (spec.dim_vo() != spec.head_dim_qk) text += " and " + std::to_string(spec.dim_vo());
  text += spec.is_causal() ? ", causal" : ", not causal";
  if (spec.window != rapt::Window{})
    text +=
        ", window " + std::to_string(spec.window.left) + "," + std::to_string(spec.window.right);
  if (spec.softcap != 0) text += ", softcap";
  if (spec.alibi) text += ", ALiBi";
  if (spec.sinks) text += ", sinks";
  if (spec.custom_mask) text += ", custom mask";
  if (spec.kv_scales != rapt::KvScales::kNone)
    text += std::string(", scales ") + to_string(spec.kv_scales);
  if (spec.needs_lse) text += ", lse";
  if (spec.batch_invariant) text += ", batch invariant";
  return text;
}

struct Answer {
  std::optional<rapt::Selection> selection;
  std::vector<rapt::BackendVerdict> verdicts;

  // Index of the verdict that would be chosen if all kernels were built.
  std::optional<size_t> once_built(const std::string& backend) const {
    for (size_t i = 0; i < verdicts.size(); i++)
      if ((backend == "auto" || backend == to_string(verdicts[i].backend)) &&
          (verdicts[i].accepted || verdicts[i].fits_but_not_built()))
        return i;
    return std::nullopt;
  }
};

Answer answer(const rapt::AttentionSpec& spec, const rapt::DeviceInfo& device,
              const rapt::SelectOptions& options) {
  Answer answer;
  answer.verdicts = rapt::explain(spec, device, options);
  try {
    answer.selection = rapt::select(spec, device, options);
  } catch (const rapt::Error& error) {
    if (error.code() != rapt::ErrorCode::kUnsupported) throw;
  }
  return answer;
}

Json to_json(const rapt::BackendVerdict& verdict) {
  return {{"backend", to_string(verdict.backend)},
          {"version", verdict.version},
          {"accepted", verdict.accepted},
          {"not_built", verdict.not_built},
          {"reasons", verdict.reasons},
          {"notes", verdict.notes}};
}

Json to_json(const rapt::AttentionSpec& spec) {
  return {{"kind", to_string(spec.kind)},
          {"num_query_heads", spec.num_query_heads},
          {"num_kv_heads", spec.num_kv_heads},
          {"head_dim_qk", spec.head_dim_qk},
          {"head_dim_vo", spec.dim_vo()},
          {"dtype", to_string(spec.dtype)},
          {"kv_format", to_string(spec.cache_format())},
          {"page_size", spec.page_size},
          {"causal", spec.is_causal()},
          {"window", {spec.window.left, spec.window.right}},
          {"scale", spec.resolved_scale()},
          {"softcap", spec.softcap},
          {"alibi", spec.alibi},
          {"sinks", spec.sinks},
          {"custom_mask", spec.custom_mask},
          {"kv_scales", to_string(spec.kv_scales)},
          {"needs_lse", spec.needs_lse},
          {"batch_invariant", spec.batch_invariant}};
}

Json to_json(const Answer& answer, const rapt::AttentionSpec& spec, const rapt::DeviceInfo& device,
             const std::string& backend) {
  Json json;
  json["device"] = device.name;
  json["spec"] = to_json(spec);
  json["chosen"] = nullptr;
  if (answer.selection)
    json["chosen"] = {{"backend", to_string(answer.selection->backend)},
                      {"version", answer.selection->version},
                      {"layout", to_string(answer.selection->layout)},
                      {"page_size", answer.selection->page_size},
                      {"graph", to_string(answer.selection->graph)}};
  json["chosen_once_built"] = nullptr;
  if (const auto index = answer.once_built(backend))
    json["chosen_once_built"] = {{"backend", to_string(answer.verdicts[*index].backend)},
                                 {"version", answer.verdicts[*index].version}};
  json["verdicts"] = Json::array();
  for (const rapt::BackendVerdict& verdict : answer.verdicts)
    json["verdicts"].push_back(to_json(verdict));
  return json;
}

void print(const Answer& answer, const rapt::AttentionSpec& spec, const rapt::DeviceInfo& device,
           const std::string& backend) {
  std::cout << "device " << device.name << ": " << describe(spec) << '\n';
  if (answer.selection) {
    std::cout << answer.selection->explain();
    return;
  }
  std::cout << "chosen: none";
  if (const auto index = answer.once_built(backend)) {
    const rapt::BackendVerdict& verdict = answer.verdicts[*index];
    std::cout << "; " << to_string(verdict.backend);
    if (verdict.version) std::cout << ' ' << verdict.version;
    std::cout << " would be once its kernels are built";
  }
  std::cout << '\n' << rapt::describe(answer.verdicts);
}

// Of Rapt's table, or a GPU of this machine.
rapt::DeviceInfo device_of(const std::string& name) {
  const std::string lowered = parse_context_device_option(name);
  if (!lowered.starts_with("cuda")) return rapt::device_info(name);
  return rapt::Context({.device = lowered, .num_threads = 1}).device();
}

void run(Arguments& arguments) {
  if (strcasecmp(arguments.backend.c_str(), "auto") == 0) arguments.backend = "auto";
  const rapt::AttentionSpec spec = spec_of(arguments);
  const rapt::DeviceInfo device = device_of(arguments.device);
  const Answer found = answer(spec, device, options_of(arguments));
  if (arguments.json)
    print_json(to_json(found, spec, device, arguments.backend));
  else
    print(found, spec, device, arguments.backend);
  // That nothing takes the problem is an answer; that the backend asked for does not is an error.
  if (arguments.backend != "auto" && !found.selection) throw CLI::RuntimeError(kBadInput);
}

}  // namespace

void add_explain(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("explain", "Say which backend takes a problem, and why not the others");
  auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  command
      ->add_option("--device", a.device,
                   "A name that `rapt devices` lists, or cuda[:N] for this machine's")
      ->capture_default_str();
  command->add_option("--head-dim", a.head_dim, "Elements of a query or key row")
      ->capture_default_str();
  command->add_option("--head-dim-vo", a.head_dim_vo, "Of a value or output row [--head-dim]");
  command->add_option("--query-heads", a.query_heads, "Query heads")->capture_default_str();
  command->add_option("--kv-heads", a.kv_heads, "KV heads")->capture_default_str();
  command->add_option("--dtype", a.dtype, "Of queries and output: fp32, fp16, bf16")
      ->capture_default_str();
  command->add_option("--kv-dtype", a.kv_dtype, "Cache format: auto, bf16, fp8_e4m3, nvfp4, ...")
      ->capture_default_str();
  command->add_option("--kv-scales", a.kv_scales, "none, per_tensor, per_head, per_token_head");
  command->add_option("--page-size", a.page_size, "Tokens per page, 0 = no cache [16]");
  command->add_option("--manager-page-size", a.manager_page_size, "Tokens per allocation unit");
  command->add_option("--layout", a.layout, "The cache's layout if it is fixed: NHD, HND");
  command->add_option("--kind", a.kind, "decoder, encoder, encoder_only, encoder_decoder")
      ->capture_default_str();
  command
      ->add_option("--mask", a.mask,
                   "auto (causal for decoders), causal, full, or custom (bits on top of auto)")
      ->check(CLI::IsMember({"auto", "causal", "full", "custom"}))
      ->capture_default_str();
  command->add_option("--window", a.window, "L,R: keys left and right of the query, -1 = all");
  command->add_option("--softcap", a.softcap, "cap * tanh(score / cap); 0 = off");
  command->add_flag("--alibi", a.alibi, "ALiBi slopes");
  command->add_flag("--sinks", a.sinks, "Attention sinks");
  command->add_flag("--lse", a.lse, "Return the log-sum-exp");
  command->add_flag("--batch-invariant", a.batch_invariant,
                    "Bits independent of what else is in the batch");
  command->add_option("--context-parallel-size", a.context_parallel_size, "Ranks the cache is on")
      ->capture_default_str();
  command->add_option("--backend", a.backend, "One backend by name; no fallback")
      ->capture_default_str();
  command->add_option("--flash-attention-version", a.flash_attention_version, "2, 3 or 4");
  command->add_flag("--json", a.json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  rapt explain --device h100 --head-dim 128 --kv-dtype fp8_e4m3 --sinks\n"
      "  rapt explain --device b200 --head-dim 512 --backend flash_attention\n"
      "  rapt explain --device cpu --head-dim 80 --window 1023,0 --json\n"
      "Exit code 0 also when no backend accepts; 2 when the one named by --backend does not.");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace rapt_tool

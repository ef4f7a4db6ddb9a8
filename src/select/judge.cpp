#include "select/judge.hpp"

#include <algorithm>
#include <utility>

#include "core/check.hpp"
#include "select/checks.hpp"
#include "select/flash_attention_version.hpp"
#include "select/names.hpp"
#include "select/page_size.hpp"
#include "select/priority.hpp"

namespace rapt {
namespace {

constexpr const char* kNotBuilt = "not built: its kernels are not in this library yet";
constexpr const char* kWouldBeChosen = "would be chosen once its kernels are built";

using Rows = std::vector<const Capability*>;

// Keeps the rows for which it holds, unless that leaves none.
template <typename Holds>
void narrow(Rows& rows, const Holds& holds) {
  Rows kept;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(kept),
               [&](const Capability* row) { return holds(*row); });
  if (!kept.empty()) rows = std::move(kept);
}

// The rows that a verdict is about: those made for this version, device and shape, or, where there
// are none, the ones that come nearest and whose checks then say what is wrong.
Rows candidates(BackendId backend, int32_t version, const Request& request) {
  Rows rows;
  for (const Capability& row : capabilities())
    if (row.backend == backend && row.version == version) rows.push_back(&row);
  narrow(rows, [&](const Capability& row) { return runs_on(row, request.device); });
  narrow(rows, [&](const Capability& row) { return row.group.contains(request.spec.group()); });
  narrow(rows, [&](const Capability& row) { return takes_head_dims(row, request.spec); });
  // On the other kind of device one row speaks for all: the last is the most general.
  if (rows.back()->device != request.device.kind) rows.erase(rows.begin(), rows.end() - 1);
  return rows;
}

// Reasons of several rows, none of which fits: what all say is said once, the rest with the row's
// name.
std::vector<std::string> merged(const Rows& rows,
                                const std::vector<std::vector<std::string>>& reasons) {
  const auto said_by = [&](size_t row, const std::string& text) {
    return std::find(reasons[row].begin(), reasons[row].end(), text) != reasons[row].end();
  };
  const auto said_by_all = [&](const std::string& text) {
    for (size_t row = 0; row < rows.size(); row++)
      if (!said_by(row, text)) return false;
    return true;
  };
  std::vector<std::string> all;
  for (size_t row = 0; row < rows.size(); row++)
    for (const std::string& text : reasons[row]) {
      if (!said_by_all(text))
        all.push_back(concat(rows[row]->name, ": ", text));
      else if (row == 0)
        all.push_back(text);
    }
  return all;
}

void add_notes(const Capability& row, const Request& request, BackendVerdict& verdict) {
  const AttentionSpec& spec = request.spec;
  if (row.backend == BackendId::kFlashInfer) verdict.notes.push_back(concat(row.name, " kernels"));
  if (spec.is_paged()) {
    const int32_t kernel_page = find_common_page_size({&row.page_sizes, 1}, spec.page_size).value();
    if (kernel_page != spec.page_size)
      verdict.notes.push_back(concat("pages of ", spec.page_size, " are read as ",
                                     spec.page_size / kernel_page, " kernel pages of ",
                                     kernel_page));
  }
  if (row.required_layout && row.layout_required_on.contains(request.device.compute_capability))
    verdict.notes.push_back(concat("layout ", to_string(*row.required_layout), " is required"));
  if (row.version == 3 && !element_dtype(spec.cache_format()))
    verdict.notes.push_back(
        concat("queries are quantised to ", to_string(spec.cache_format()), ", like the cache"));
  if (row.decode_only) verdict.notes.push_back("steps of one query token per request only");
}

// By the rows of that version, 0 but for FlashAttention's generations.
Judgement judge(BackendId backend, int32_t version, const Request& request, IsBuilt is_built) {
  Judgement result;
  BackendVerdict& verdict = result.verdict;
  verdict.backend = backend;
  verdict.version = version;
  const Rows rows = candidates(backend, version, request);
  std::vector<std::vector<std::string>> reasons;
  for (const Capability* row : rows) reasons.push_back(reasons_against(*row, request));

  // A row that fits and is built, or one that fits, or the first.
  size_t best = 0;
  for (size_t i = rows.size(); i-- > 0;)
    if (reasons[i].empty() &&
        (is_built(*rows[i]) || !reasons[best].empty() || !is_built(*rows[best])))
      best = i;
  result.row = rows[best];
  if (reasons[best].empty())
    add_notes(*result.row, request, verdict);
  else
    verdict.reasons = merged(rows, reasons);
  verdict.not_built = !is_built(*result.row);
  if (verdict.not_built) verdict.reasons.emplace_back(kNotBuilt);
  verdict.accepted = verdict.reasons.empty();
  return result;
}

// The generation that the chain ends at or, where that one cannot and none was asked for, the most
// general one.
Judgement judge_flash_attention(const Request& request, IsBuilt is_built) {
  constexpr int32_t kMostGeneral = 2;
  if (!request.on_cuda())  // whose row says what a CPU lacks
    return judge(BackendId::kFlashAttention, kMostGeneral, request, is_built);
  FlashAttentionVersion choice = flash_attention_version(request);
  Judgement result = judge(BackendId::kFlashAttention, choice.version, request, is_built);
  if (!result.verdict.accepted && !request.options.flash_attention_version) {
    Judgement general = judge(BackendId::kFlashAttention, kMostGeneral, request, is_built);
    if (general.verdict.accepted) {
      choice.trail.push_back(concat("version ", kMostGeneral, " instead of ", choice.version, ": ",
                                    result.verdict.reasons.front()));
      result = std::move(general);
    }
  }
  std::vector<std::string>& notes = result.verdict.notes;
  notes.insert(notes.begin(), choice.trail.begin(), choice.trail.end());
  return result;
}

// The backend asked for, if one was, is alone in the running.
bool is_running(const Judgement& judgement, const Request& request) {
  return !request.by_name() || to_string(judgement.verdict.backend) == request.options.backend;
}

}  // namespace

std::vector<Judgement> judge(const Request& request, IsBuilt is_built) {
  validate(request);
  std::vector<Judgement> judgements;
  for (BackendId backend : priority(request))
    judgements.push_back(backend == BackendId::kFlashAttention
                             ? judge_flash_attention(request, is_built)
                             : judge(backend, 0, request, is_built));
  for (Judgement& judgement : judgements) {
    if (!is_running(judgement, request)) continue;
    if (judgement.verdict.accepted) break;
    if (judgement.verdict.fits_but_not_built()) {
      judgement.verdict.notes.emplace_back(kWouldBeChosen);
      break;
    }
  }
  return judgements;
}

Selection select(const Request& request, IsBuilt is_built) {
  const std::vector<Judgement> judgements = judge(request, is_built);
  Selection selection;
  for (const Judgement& judgement : judgements) selection.verdicts.push_back(judgement.verdict);
  const auto chosen =
      std::find_if(judgements.begin(), judgements.end(), [&](const Judgement& judgement) {
        return judgement.verdict.accepted && is_running(judgement, request);
      });
  if (chosen == judgements.end()) {
    if (!request.by_name())
      fail(ErrorCode::kUnsupported, "no backend accepts this problem on device ",
           request.device.name, "\n", describe(selection.verdicts));
    const auto named =
        std::find_if(judgements.begin(), judgements.end(),
                     [&](const Judgement& judgement) { return is_running(judgement, request); });
    fail(ErrorCode::kUnsupported, "backend ", request.options.backend,
         " was asked for, and refuses", "\n", describe({&named->verdict, 1}));
  }
  const Capability& row = *chosen->row;
  selection.backend = row.backend;
  selection.version = row.version;
  selection.layout = request.options.layout.value_or(KvLayout::kNHD);
  if (row.required_layout && row.layout_required_on.contains(request.device.compute_capability))
    selection.layout = *row.required_layout;
  selection.page_sizes = row.page_sizes;
  if (request.spec.is_paged())
    selection.page_size =
        find_common_page_size({&row.page_sizes, 1}, request.spec.page_size).value();
  selection.graph = row.graph;
  return selection;
}

}  // namespace rapt

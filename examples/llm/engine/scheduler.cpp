#include "llm/engine/scheduler.hpp"

#include <algorithm>

#include "llm/model/failure.hpp"
#include "rapt/kv_cache.hpp"

namespace llm {

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options), pages_(options.num_pages, options.page_size) {
  check_supported(options.tokens_per_step >= 1, "tokens_per_step is ", options.tokens_per_step,
                  ": must be at least 1");
}

int64_t Scheduler::add(std::vector<int32_t> prompt, int64_t max_length) {
  const auto length = static_cast<int64_t>(prompt.size());
  check_supported(length > 0,
                  "a request has no tokens: a model without a BOS token needs a prompt");
  // The last token's own key and value are never computed.
  const int64_t cached = std::max(length, max_length - 1);
  const int64_t needed = (cached + options_.page_size - 1) / options_.page_size;
  check_supported(needed <= options_.num_pages, "a request of ", length,
                  " prompt tokens that may grow to ", max_length, " needs ", needed, " pages of ",
                  options_.page_size, " tokens, but the pool has ", options_.num_pages,
                  ": give it more pages or ask for fewer tokens");
  const auto id = static_cast<int64_t>(requests_.size());
  const bool is_done = max_length <= length;
  requests_.push_back({.text = std::move(prompt),
                       .prompt_length = length,
                       .max_length = max_length,
                       .is_done = is_done});
  if (!is_done) waiting_.push_back(id);
  return id;
}

int64_t Scheduler::num_pending(const Request& request) const {
  return static_cast<int64_t>(request.text.size()) - pages_.num_tokens(request.sequence);
}

void Scheduler::preempt_youngest() {
  const int64_t id = running_.back();
  pages_.end(requests_[static_cast<size_t>(id)].sequence);
  requests_[static_cast<size_t>(id)].sequence = -1;
  running_.pop_back();
  waiting_.push_front(id);
  stats_.num_preemptions++;
}

// Pages for a running request, if need be those of younger ones. False if it had to go itself.
bool Scheduler::make_room(size_t running_index, int64_t num_tokens) {
  const auto sequence = requests_[static_cast<size_t>(running_[running_index])].sequence;
  while (!pages_.can_reserve(sequence, num_tokens)) {
    const bool is_youngest = running_.size() == running_index + 1;
    preempt_youngest();
    if (is_youngest) return false;
  }
  return true;
}

void Scheduler::schedule(int64_t id, int64_t num_tokens, Step& step) {
  const Request& request = requests_[static_cast<size_t>(id)];
  const int64_t first = pages_.num_tokens(request.sequence);
  const auto tokens =
      std::span(request.text).subspan(static_cast<size_t>(first), static_cast<size_t>(num_tokens));
  pages_.reserve(request.sequence, num_tokens);
  // The pages are as good as written: see Step.
  pages_.append(request.sequence, tokens);
  const std::span<const int32_t> pages = pages_.pages(request.sequence);
  for (int64_t i = 0; i < num_tokens; ++i) {
    step.tokens.push_back(tokens[static_cast<size_t>(i)]);
    step.positions.push_back(static_cast<int32_t>(first + i));
    step.slots.push_back(rapt::slot_of(pages, options_.page_size, first + i));
  }
  step.query_start.push_back(static_cast<int32_t>(step.tokens.size()));
  step.kv_len.push_back(static_cast<int32_t>(first + num_tokens));
  step.table_width = std::max(step.table_width, static_cast<int64_t>(pages.size()));
  scheduled_.push_back(id);
  if (first + num_tokens == static_cast<int64_t>(request.text.size())) {
    step.logit_rows.push_back(static_cast<int32_t>(step.tokens.size()) - 1);
    logit_requests_.push_back(id);
  }
  const bool is_decode = num_tokens == 1 && first >= request.prompt_length;
  (is_decode ? stats_.decode_tokens : stats_.prefill_tokens) += num_tokens;
}

// Starts waiting requests that have room for all they need now, or the first one if none runs.
void Scheduler::admit(Step& step) {
  while (!waiting_.empty() && step.num_tokens() < options_.tokens_per_step) {
    Request& request = requests_[static_cast<size_t>(waiting_.front())];
    request.sequence = pages_.begin(request.text);
    const int64_t pending = num_pending(request);
    if (!running_.empty() && !pages_.can_reserve(request.sequence, pending)) {
      pages_.end(request.sequence);
      request.sequence = -1;
      return;
    }
    stats_.cached_tokens += pages_.num_cached_tokens(request.sequence);
    running_.push_back(waiting_.front());
    waiting_.pop_front();
    schedule(running_.back(), std::min(pending, options_.tokens_per_step - step.num_tokens()),
             step);
  }
}

void Scheduler::fill_page_table(Step& step) {
  step.page_table.assign(step.kv_len.size() * static_cast<size_t>(step.table_width), -1);
  for (size_t b = 0; b < scheduled_.size(); ++b) {
    const auto pages = pages_.pages(requests_[static_cast<size_t>(scheduled_[b])].sequence);
    std::copy(pages.begin(), pages.end(),
              step.page_table.begin() + static_cast<int64_t>(b) * step.table_width);
  }
}

bool Scheduler::next(Step& step) {
  step = {};
  step.query_start = {0};
  scheduled_.clear();
  logit_requests_.clear();
  const int64_t preemptions_before = stats_.num_preemptions;
  for (size_t i = 0; i < running_.size(); ++i) {
    const int64_t id = running_[i], left = options_.tokens_per_step - step.num_tokens();
    const int64_t num_tokens = std::min(num_pending(requests_[static_cast<size_t>(id)]), left);
    if (num_tokens == 0) break;
    if (make_room(i, num_tokens)) schedule(id, num_tokens, step);
  }
  if (stats_.num_preemptions == preemptions_before) admit(step);
  fill_page_table(step);
  stats_.most_pages_used = std::max(stats_.most_pages_used, pages_.num_used_pages());
  stats_.most_pages_shared = std::max(stats_.most_pages_shared, pages_.num_shared_pages());
  return step.num_tokens() > 0;
}

void Scheduler::push(int64_t id, int32_t token, bool stop) {
  Request& request = requests_[static_cast<size_t>(id)];
  if (!stop) request.text.push_back(token);
  if (!stop && static_cast<int64_t>(request.text.size()) < request.max_length) return;
  request.is_done = true;
  pages_.end(request.sequence);
  request.sequence = -1;
  std::erase(running_, id);
}

bool Scheduler::is_done(int64_t request) const {
  return requests_[static_cast<size_t>(request)].is_done;
}

std::span<const int32_t> Scheduler::text(int64_t request) const {
  return requests_[static_cast<size_t>(request)].text;
}

}  // namespace llm

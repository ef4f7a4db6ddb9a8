// Continuous batching: which tokens of which requests go into the next step, and on which pages.
//
// Host bookkeeping over rapt::PageAllocator; it touches neither weights nor the cache.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "llm/engine/step.hpp"
#include "rapt/page_allocator.hpp"

namespace llm {

struct SchedulerOptions {
  int64_t num_pages = 0;
  int32_t page_size = 16;
  int64_t tokens_per_step = 512;  // longer prompts are computed in chunks
};

struct SchedulerStats {
  int64_t prefill_tokens = 0;  // computed, those of preempted requests again
  int64_t decode_tokens = 0;
  int64_t cached_tokens = 0;  // found in pages that were there already
  int64_t num_preemptions = 0;
  int64_t most_pages_used = 0, most_pages_shared = 0;  // at one time
};

// Requests are served in the order they came: each step first the running ones, then new ones while
// the budget of tokens and the pages last. If the running ones run out of pages, the youngest gives
// its own back and is computed anew later.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Queues a request that ends, at the latest, when its text is max_length tokens long. Returns its
  // number: 0, 1, ... Throws if it could not run even alone.
  int64_t add(std::vector<int32_t> prompt, int64_t max_length);

  // Fills the next step; false when all requests are done.
  bool next(Step& step);
  // The requests of the step's logit_rows, in their order. push() must follow for each.
  std::span<const int64_t> logit_requests() const { return logit_requests_; }
  // The next token of a request. `stop`: it ends the text and is not part of it.
  void push(int64_t request, int32_t token, bool stop);

  bool is_done(int64_t request) const;
  // Prompt and generated tokens.
  std::span<const int32_t> text(int64_t request) const;
  const SchedulerStats& stats() const { return stats_; }

 private:
  struct Request {
    std::vector<int32_t> text;
    int64_t prompt_length = 0, max_length = 0;
    rapt::PageAllocator::SequenceId sequence = -1;  // while it runs
    bool is_done = false;
  };

  int64_t num_pending(const Request& request) const;  // tokens to compute before the next is known
  bool make_room(size_t running_index, int64_t num_tokens);
  void preempt_youngest();
  void schedule(int64_t request, int64_t num_tokens, Step& step);
  void admit(Step& step);
  void fill_page_table(Step& step);

  SchedulerOptions options_;
  rapt::PageAllocator pages_;
  std::vector<Request> requests_;
  std::deque<int64_t> waiting_;
  std::vector<int64_t> running_;    // in the order they came
  std::vector<int64_t> scheduled_;  // in this step
  std::vector<int64_t> logit_requests_;
  SchedulerStats stats_;
};

}  // namespace llm

// Pairwise merging, best pair first: the core of SentencePiece's BPE and of GPT-2's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <queue>
#include <string_view>
#include <vector>

namespace llm {

struct Symbol {
  std::string_view bytes;  // a part of the text; neighbours are adjacent in memory
  int32_t id;              // -1 = no token has these bytes
};

struct Merge {
  double priority;  // higher is better; of equal ones the leftmost goes first
  int32_t id;       // the token of both symbols together
};

// Replaces neighbours by their merge until none is left. `find_merge(left, right)` returns
// std::optional<Merge>. n symbols take O(n log n).
template <typename FindMerge>
std::vector<Symbol> merge_symbols(std::vector<Symbol> symbols, const FindMerge& find_merge) {
  struct Candidate {
    double priority;
    size_t left, right;  // indices into symbols
    size_t num_bytes;    // of both when the candidate was made: stale if it has changed
    int32_t id;
    bool operator<(const Candidate& other) const {
      return priority != other.priority ? priority < other.priority : left > other.left;
    }
  };
  // A linked list over the vector: a symbol merged into its left neighbour keeps no bytes.
  const size_t count = symbols.size();
  std::vector<size_t> previous(count), next(count);
  std::priority_queue<Candidate> queue;
  const auto offer = [&](size_t left, size_t right) {
    if (const std::optional<Merge> merge = find_merge(symbols[left], symbols[right])) {
      queue.push({merge->priority, left, right,
                  symbols[left].bytes.size() + symbols[right].bytes.size(), merge->id});
    }
  };
  for (size_t i = 0; i < count; ++i) {
    previous[i] = i == 0 ? count : i - 1;  // count = none
    next[i] = i + 1;
    if (i > 0) offer(i - 1, i);
  }
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    if (left.bytes.empty() || right.bytes.empty() ||
        left.bytes.size() + right.bytes.size() != best.num_bytes)
      continue;
    left = {std::string_view(left.bytes.data(), best.num_bytes), best.id};
    right.bytes = {};
    next[best.left] = next[best.right];
    if (next[best.left] < count) previous[next[best.left]] = best.left;
    if (previous[best.left] < count) offer(previous[best.left], best.left);
    if (next[best.left] < count) offer(best.left, next[best.left]);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.bytes.empty(); });
  return symbols;
}

}  // namespace llm

// The selector proper: every backend judged, one picked.
#pragma once

#include <optional>
#include <vector>

#include "select/capability.hpp"
#include "select/request.hpp"

namespace rapt {

// Which rows count as built, so that tests can ask what would be if all were.
using IsBuilt = bool (*)(const Capability&);
inline bool built_here(const Capability& row) {
  return row.built;
}

struct Judgement {
  BackendVerdict verdict;
  const Capability* row = nullptr;  // the row the verdict is about
};

// One for each backend, in priority order. The first one that fits but is not built, with no
// accepted one before it, has a note that says so.
std::vector<Judgement> judge(const Request& request, IsBuilt is_built);

// As select() and explain(), which pass built_here.
Selection select(const Request& request, IsBuilt is_built);

}  // namespace rapt

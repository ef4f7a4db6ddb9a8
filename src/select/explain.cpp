// Verdicts and selections as text.
#include "core/check.hpp"
#include "select/names.hpp"

namespace rapt {
namespace {

std::string name_of(BackendId backend, int32_t version) {
  return version == 0 ? to_string(backend) : concat(to_string(backend), " ", version);
}

}  // namespace

std::string describe(std::span<const BackendVerdict> verdicts) {
  std::string text;
  for (const BackendVerdict& verdict : verdicts) {
    text += concat(name_of(verdict.backend, verdict.version),
                   verdict.accepted ? ": accepts" : ": refuses", "\n");
    for (const std::string& reason : verdict.reasons) text += "  - " + reason + "\n";
    for (const std::string& note : verdict.notes) text += "  * " + note + "\n";
  }
  return text;
}

std::string Selection::explain() const {
  std::string text = concat("chosen: ", name_of(backend, version), ", layout ", to_string(layout),
                            page_size ? concat(", pages of ", page_size) : ", no cache",
                            ", graphs ", to_string(graph), "\n");
  return text + describe(verdicts);
}

}  // namespace rapt

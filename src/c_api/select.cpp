#include <string>
#include <utility>
#include <vector>

#include "c_api/device_info.hpp"
#include "c_api/params.hpp"
#include "c_api/spec.hpp"

// The verdicts, and their texts as C arrays.
struct rapt_verdicts {
  struct Texts {
    std::vector<const char*> reasons, notes;
  };
  std::vector<rapt::BackendVerdict> verdicts;
  std::vector<Texts> texts;  // one for each verdict, pointing into it

  explicit rapt_verdicts(std::vector<rapt::BackendVerdict> given) : verdicts(std::move(given)) {
    for (const rapt::BackendVerdict& verdict : verdicts) {
      Texts& entry = texts.emplace_back();
      for (const std::string& reason : verdict.reasons) entry.reasons.push_back(reason.c_str());
      for (const std::string& note : verdict.notes) entry.notes.push_back(note.c_str());
    }
  }
};

using namespace rapt::c_api;

rapt_status rapt_select(const rapt_attention_spec* spec, const char* device,
                        const rapt_select_options* options, rapt_selection* selection) {
  return guarded([&] {
    const size_t size = checked_struct_size(selection, "selection");
    write_params(selection, size,
                 selection_of(rapt::select(spec_of(spec), device_named(device),
                                           select_options_of(options))));
  });
}

rapt_status rapt_explain(const rapt_attention_spec* spec, const char* device,
                         const rapt_select_options* options, rapt_verdicts** verdicts) {
  return guarded([&] {
    require(verdicts, "verdicts");
    *verdicts = new rapt_verdicts(
        rapt::explain(spec_of(spec), device_named(device), select_options_of(options)));
  });
}

rapt_status rapt_verdicts_count(const rapt_verdicts* verdicts, size_t* count) {
  return guarded([&] {
    require(verdicts, "verdicts");
    *require(count, "count") = verdicts->verdicts.size();
  });
}

rapt_status rapt_verdicts_get(const rapt_verdicts* verdicts, size_t i, rapt_verdict* verdict) {
  return guarded([&] {
    require(verdicts, "verdicts");
    const size_t size = checked_struct_size(verdict, "verdict");
    rapt::check(i < verdicts->verdicts.size(), "i is ", i, ": there are ",
                verdicts->verdicts.size(), " verdicts");
    const rapt::BackendVerdict& given = verdicts->verdicts[i];
    const rapt_verdicts::Texts& texts = verdicts->texts[i];
    rapt_verdict result{};
    result.backend = to_string(given.backend);
    result.version = given.version;
    result.accepted = given.accepted;
    result.num_reasons = texts.reasons.size();
    result.reasons = texts.reasons.data();
    result.num_notes = texts.notes.size();
    result.notes = texts.notes.data();
    write_params(verdict, size, result);
  });
}

void rapt_verdicts_destroy(rapt_verdicts* verdicts) {
  delete verdicts;
}

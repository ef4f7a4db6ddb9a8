// A problem's tensors in poisoned memory, and one run of them through the public API.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/device_mirror.hpp"
#include "support/guarded_buffer.hpp"
#include "support/matrix.hpp"
#include "support/problem.hpp"

namespace rapt::test {

// What a run left behind.
struct Outcome {
  std::vector<float> out{};  // [T, Hq, Dvo], exactly as stored
  std::vector<float> lse{};  // [Hq, T]; empty unless the spec needs it
  std::string fault{};       // what was written that must not be; empty if nothing was
  std::string plan{};        // Plan::describe()
};

// Everything that must not be read is NaN (bytes 0xFF), everything that must not be written holds
// 0xA5: the run's own rows of out and lse, their padding, and the memory around them. Workspace
// is 0xFF and just as long as the plan says. Keys that no query sees, by its position or by the
// custom mask, are NaN too.
class Tensors {
 public:
  explicit Tensors(const Problem& problem);

  const Problem& problem() const { return problem_; }
  const Values& values() const { return values_; }
  Batch batch() const;
  SelectOptions select_options(const Backend& backend) const;
  // Arguments for a run of the plan; out, lse and workspace are filled anew.
  RunArgs args(const Plan& plan);

  // The same on a mirror's device: all buffers but the workspace and the outputs go there with
  // put(); the page table is there too, or stays on the host.
  void put(DeviceMirror& mirror) const;
  Batch batch(const DeviceMirror& mirror, bool table_on_device) const;
  RunArgs args(const Plan& plan, DeviceMirror& mirror);
  // Writes the keys and values by Attention::write_kv, in a layout that asks for it.
  void write_cache(const Attention& attention, DeviceMirror& mirror);
  void fetch(const DeviceMirror& mirror);  // what a run wrote

  // Reads what the last run left.
  Outcome collect() const;

 private:
  void lay_out_queries();
  void lay_out_pages();
  void lay_out_ragged();
  void poison_keys();
  void fill_keys();
  // Keys, values and slots as write_kv is given them.
  struct NewKeys {
    GuardedBuffer k, v, slots;
    WriteKvArgs args;
  };
  NewKeys new_keys();
  bool writes_cache() const { return problem_.layout.write_kv && problem_.spec.is_paged(); }
  std::byte* key_at(const TensorView& view, size_t b, int64_t token, int64_t head) const;

  Problem problem_;
  Values values_;
  std::vector<int32_t> query_start_, kv_len_, kv_start_;  // kv_start_ with gaps; empty if paged
  TensorView q_view_, k_view_, v_view_, out_view_, lse_view_, table_view_;
  int64_t num_pages_ = 0;
  size_t first_key_byte_ = 0;  // of keys_; nothing is written before it
  GuardedBuffer q_, keys_, table_, out_, lse_, workspace_;
  GuardedBuffer mask_, sinks_, slopes_, k_scale_, v_scale_;
};

// A problem's tensors where a context's runs take them: as they are on the CPU, as doubles on a
// GPU.
class Placed {
 public:
  Placed(Tensors& tensors, const Backend& backend)
      : tensors_(tensors),
        context_(context_of(backend)),
        table_on_device_(tensors.problem().spec.is_paged() &&
                         backend.table_on_device.value_or(tensors.problem().seed % 2 == 0)) {
    tensors.put(mirror_);
  }
  Batch batch() const { return tensors_.batch(mirror_, table_on_device_); }
  RunArgs args(const Plan& plan) { return tensors_.args(plan, mirror_); }
  void write_cache(const Attention& attention) { tensors_.write_cache(attention, mirror_); }
  // Waits for the last run.
  Outcome collect();
  DeviceMirror& mirror() { return mirror_; }

 private:
  Tensors& tensors_;
  Context& context_;
  bool table_on_device_;
  DeviceMirror mirror_{context_};
};

// Selects by name, plans, runs.
Outcome run(Tensors& tensors, const Backend& backend);
Outcome run(const Problem& problem, const Backend& backend);

}  // namespace rapt::test

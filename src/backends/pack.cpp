// From specs and architectures to a pack of the kernels that they may ask for: like registry.cpp,
// this knows all backends.
#include "rapt/pack.hpp"

#include <map>
#include <set>
#include <utility>

#include "backends/cuda/cuda_gpu.hpp"
#include "backends/flash_attention/kernel_texts.hpp"
#include "core/check.hpp"
#include "core/thread_pool.hpp"
#include "jit/build_pack.hpp"
#include "rapt/select.hpp"

namespace rapt {
namespace {

// What code for it runs on and is asked for by, a device for each compute capability: they differ
// in shared memory, and so in tiles.
std::map<int32_t, DeviceInfo> devices_of(const std::string& name) {
  const jit::Architecture architecture = jit::parse_architecture(name);
  std::map<int32_t, DeviceInfo> devices;
  std::set<int32_t> all;
  for (const std::string& known : known_device_names()) {
    const DeviceInfo device = device_info(known);
    const int32_t its = device.compute_capability;
    if (device.kind != DeviceKind::kCuda) continue;
    all.insert(its);
    if (architecture.runs_on(its) && architecture_for(its) == architecture_for(architecture.number))
      devices.emplace(its, device);
  }
  if (devices.empty()) {
    std::string numbers;
    for (const int32_t number : all) numbers += concat(numbers.empty() ? "" : ", ", number);
    fail(ErrorCode::kInvalidArgument, "architecture is \"", name,
         "\": no device that Rapt knows has it: must be one of ", numbers,
         ", as it is or with a or f behind it");
  }
  return devices;
}

std::vector<KernelText> texts_for(const AttentionSpec& spec, const DeviceInfo& device) {
  const Selection selection = select(spec, device);
  if (selection.backend != BackendId::kFlashAttention)
    fail(ErrorCode::kUnsupported, "backend ", to_string(selection.backend),
         " runs it, which compiles no kernels");
  std::vector<KernelText> texts = flash_attention::texts_for(spec, device);
  texts.push_back(
      merge_states_text(spec.dtype, spec.dtype, architecture_for(device.compute_capability)));
  return texts;
}

std::vector<jit::PackUnit> units_of(const PackOptions& options) {
  std::vector<jit::PackUnit> units;
  for (const std::string& architecture : options.architectures)
    for (const auto& [compute_capability, device] : devices_of(architecture))
      for (size_t i = 0; i < options.specs.size(); i++) {
        try {
          for (const KernelText& text : texts_for(options.specs[i], device))
            units.push_back({jit::translation_unit(text.key, text.source), text.shared_bytes});
        } catch (const Error& error) {
          fail(error.code(), "specs[", i, "] on ", device.name, ": ", error.what());
        }
      }
  return units;
}

}  // namespace

std::vector<PackedKernel> build_pack(const std::string& path, const PackOptions& options) {
  check(!options.specs.empty(), "specs is empty: a pack needs at least one");
  check(!options.architectures.empty(), "architectures is empty: name at least one, such as 80");
  const int32_t num_threads = resolve_num_threads(options.num_threads);
  const std::vector<jit::PackUnit> units = units_of(options);
  jit::build_pack(path, units, jit::Nvrtc(), {num_threads, options.progress});
  return list_pack(path);
}

std::vector<PackedKernel> list_pack(const std::string& path) {
  std::vector<PackedKernel> kernels;
  for (jit::PackedKernel& packed : jit::Pack(path).kernels()) {
    jit::Resources& resources = packed.resources;
    kernels.push_back({.key = std::move(packed.key),
                       .num_registers = resources.num_registers,
                       .stack_bytes = resources.stack_bytes,
                       .spill_store_bytes = resources.spill_store_bytes,
                       .spill_load_bytes = resources.spill_load_bytes,
                       .static_shared_bytes = resources.static_shared_bytes,
                       .dynamic_shared_bytes = packed.dynamic_shared_bytes,
                       .messages = std::move(resources.messages),
                       .image_bytes = static_cast<int64_t>(packed.image_bytes),
                       .packed_bytes = static_cast<int64_t>(packed.packed_bytes),
                       .hash = packed.unit_hash.hex()});
  }
  return kernels;
}

}  // namespace rapt

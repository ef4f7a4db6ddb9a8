#include "c_api/device_info.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "c_api/params.hpp"

namespace rapt::c_api {
namespace {

// Drivers' names of devices may be longer.
template <size_t N>
void copy_name(std::string_view name, char (&field)[N]) {
  std::copy_n(name.begin(), std::min(name.size(), N - 1), field);
}

// Known once and for all, so that names can be handed out as static strings.
const std::vector<std::string>& names() {
  static const std::vector<std::string> known = known_device_names();
  return known;
}

}  // namespace

rapt_device_info device_info_of(const DeviceInfo& device) {
  rapt_device_info info{};
  copy_name(device.name, info.name);
  const bool cpu = device.kind == DeviceKind::kCpu;
  info.device_type = cpu ? kDLCPU : kDLCUDA;
  if (cpu) copy_name(to_string(device.isa), info.isa);
  info.num_cores = cpu ? device.num_cores : 0;
  info.l1_bytes = device.l1_bytes;
  info.l2_bytes = device.l2_bytes;
  info.l3_bytes = device.l3_bytes;
  info.compute_capability = device.compute_capability;
  info.num_sms = device.num_sms;
  info.shared_memory_bytes_per_block = device.shared_memory_bytes_per_block;
  info.memory_bytes = device.memory_bytes;
  info.memory_bandwidth = device.memory_bandwidth;
  return info;
}

DeviceInfo device_named(const char* name) {
  return name ? device_info(name) : host_cpu();
}

}  // namespace rapt::c_api

using namespace rapt::c_api;

rapt_status rapt_device_info_of(const char* name, rapt_device_info* info) {
  return guarded([&] {
    const size_t size = checked_struct_size(info, "info");
    write_params(info, size, device_info_of(device_named(name)));
  });
}

size_t rapt_num_devices(void) {
  size_t count = 0;
  guarded([&] { count = names().size(); });
  return count;
}

const char* rapt_device_name(size_t i) {
  const char* name = nullptr;
  guarded([&] {
    if (i < names().size()) name = names()[i].c_str();
  });
  return name;
}

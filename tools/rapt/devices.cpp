// rapt devices: the table of known devices, and this machine.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "console.hpp"
#include "rapt/rapt.hpp"

namespace rapt_tool {
namespace {

constexpr double kKiB = 1024, kGiB = 1024.0 * 1024 * 1024;

Json to_json(const rapt::DeviceInfo& device) {
  Json json;
  json["name"] = device.name;
  if (device.kind == rapt::DeviceKind::kCpu) {
    json["kind"] = "cpu";
    json["isa"] = to_string(device.isa);
    json["num_cores"] = device.num_cores;
    json["l1_bytes"] = device.l1_bytes;
    json["l2_bytes"] = device.l2_bytes;
    json["l3_bytes"] = device.l3_bytes;
  } else {
    json["kind"] = "cuda";
    json["compute_capability"] = device.compute_capability;
    json["num_sms"] = device.num_sms;
    json["shared_memory_bytes_per_block"] = device.shared_memory_bytes_per_block;
    json["memory_bytes"] = device.memory_bytes;
    json["memory_bandwidth"] = device.memory_bandwidth;
  }
  return json;
}

void print_cpu(const rapt::DeviceInfo& device) {
  std::printf("%-16s %-12s %6d %10.0f %9.0f %10.0f\n", device.name.c_str(), to_string(device.isa),
              device.num_cores, static_cast<double>(device.l1_bytes) / kKiB,
              static_cast<double>(device.l2_bytes) / kKiB,
              static_cast<double>(device.l3_bytes) / kKiB);
}

void print_gpu(const std::string& name, const rapt::DeviceInfo& device) {
  std::printf("%-16s %8d.%d %6d %10.0f %10.0f %9.0f", name.c_str(), device.compute_capability / 10,
              device.compute_capability % 10, device.num_sms,
              static_cast<double>(device.shared_memory_bytes_per_block) / kKiB,
              static_cast<double>(device.memory_bytes) / kGiB, device.memory_bandwidth / 1e9);
  if (name != device.name) std::printf("  %s", device.name.c_str());
  std::printf("\n");
}

// Devices that a context can be opened on here, by the names it takes; or why there are none.
struct Present {
  std::vector<std::pair<std::string, rapt::DeviceInfo>> devices;
  std::string why_none;
};

template <typename List, typename Name>
Present find(const List& list, const Name& name) {
  Present present;
  try {
    for (const rapt::DeviceInfo& device : list())
      present.devices.emplace_back(name(present.devices.size(), device), device);
    if (present.devices.empty()) present.why_none = "the driver finds none";
  } catch (const rapt::Error& error) {
    present.why_none = error.what();
  }
  return present;
}

Present find_gpus() {
  return find(rapt::cuda_devices, [](size_t ordinal, const rapt::DeviceInfo&) {
    return "cuda:" + std::to_string(ordinal);
  });
}

Present find_emulated() {
  return find(rapt::emulated_devices, [](size_t, const rapt::DeviceInfo& device) {
    return "emulated-sm" + std::to_string(device.compute_capability);
  });
}

Json to_json(const Present& present) {
  Json json{{"devices", Json::array()}, {"why_none", nullptr}};
  for (const auto& [name, info] : present.devices) {
    json["devices"].push_back({{"device", name}});
    json["devices"].back().update(to_json(info));
  }
  if (present.devices.empty()) json["why_none"] = present.why_none;
  return json;
}

void print(const char* what, const Present& present) {
  std::printf("\n%s\n", what);
  if (present.devices.empty()) std::printf("none: %s\n", present.why_none.c_str());
  for (const auto& [name, info] : present.devices) print_gpu(name, info);
}

void run(bool json) {
  std::vector<rapt::DeviceInfo> cpus, gpus;
  for (const std::string& name : rapt::known_device_names()) {
    const rapt::DeviceInfo device = rapt::device_info(name);
    (device.kind == rapt::DeviceKind::kCpu ? cpus : gpus).push_back(device);
  }
  const Present present = find_gpus(), emulated = find_emulated();
  if (json) {
    Json known = Json::array();
    for (const auto* devices : {&cpus, &gpus})
      for (const rapt::DeviceInfo& device : *devices) known.push_back(to_json(device));
    print_json({{"this_machine", to_json(rapt::host_cpu())},
                {"gpus", to_json(present)},
                {"emulated", to_json(emulated)},
                {"known", known}});
    return;
  }
  std::printf("%-16s %-12s %6s %10s %9s %10s\n", "CPU", "isa", "cores", "L1 KiB", "L2 KiB",
              "L3 KiB");
  for (const rapt::DeviceInfo& device : cpus) print_cpu(device);
  std::printf("\n%-16s %10s %6s %10s %10s %9s\n", "GPU", "SM", "SMs", "shared KiB", "memory GiB",
              "GB/s");
  for (const rapt::DeviceInfo& device : gpus) print_gpu(device.name, device);
  std::printf("\n\"cpu\" is this machine; smNN is a nominal device, emulated-smNN the same.\n");
  print("GPUs of this machine", present);
  print("Emulated GPUs, on its CPU", emulated);
}

}  // namespace

void add_devices(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("devices", "List the devices Rapt knows, and what this machine has");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  rapt devices\n"
      "  rapt devices --json | jq .this_machine");
  command->callback([json] { run(*json); });
}

}  // namespace rapt_tool

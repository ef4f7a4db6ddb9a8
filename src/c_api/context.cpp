#include <string>
#include <utility>

#include "c_api/device_info.hpp"
#include "c_api/handles.hpp"
#include "c_api/params.hpp"

namespace rapt::c_api {
namespace {

// The caller's loop, called with a std::function behind its task pointer.
ParallelFor parallel_for_of(rapt_parallel_for hook, void* user) {
  return [hook, user](int32_t num_tasks, const std::function<void(int32_t)>& task) {
    auto call = [](void* data, int32_t i) {
      (*static_cast<const std::function<void(int32_t)>*>(data))(i);
    };
    hook(user, num_tasks, call, const_cast<std::function<void(int32_t)>*>(&task));
  };
}

ContextOptions options_of(const rapt_context_options& given) {
  ContextOptions options;
  options.num_threads = given.num_threads;
  if (given.parallel_for)
    options.parallel_for = parallel_for_of(given.parallel_for, given.parallel_for_user);
  if (given.log)
    options.log = [log = given.log, user = given.log_user](LogLevel level, std::string_view text) {
      log(user, static_cast<rapt_log_level>(level), std::string(text).c_str());
    };
  if (given.isa) {
    options.isa = parse_cpu_isa(given.isa);
    check(options.isa.has_value(), "options->isa is \"", given.isa,
          "\": must be baseline, avx2, avx512, avx512_bf16 or amx_bf16");
  }
  if (given.device) options.device = given.device;
  check(given.packs || !given.num_packs, "options->packs is null, but num_packs is ",
        given.num_packs);
  for (size_t i = 0; i < given.num_packs; i++)
    options.packs.emplace_back(require(given.packs[i], "options->packs[i]"));
  options.check_device_indices =
      to_flag(given.check_device_indices, "options->check_device_indices");
  if (given.cache_folder) options.cache_folder = given.cache_folder;
  return options;
}

}  // namespace
}  // namespace rapt::c_api

using namespace rapt::c_api;

rapt_status rapt_context_create(const rapt_context_options* options, rapt_context** context) {
  return guarded([&] {
    require(context, "context");
    const auto given = read_optional_params(options, "options");
    auto made = std::make_shared<rapt::Context>(options_of(given));
    *context = new rapt_context{std::move(made)};
  });
}

void rapt_context_destroy(rapt_context* context) {
  delete context;
}

rapt_status rapt_context_num_threads(const rapt_context* context, int32_t* num_threads) {
  return guarded([&] {
    require(context, "context");
    *require(num_threads, "num_threads") = context->context->num_threads();
  });
}

rapt_status rapt_context_synchronize(const rapt_context* context, void* stream) {
  return guarded([&] { require(context, "context")->context->synchronize(stream); });
}

rapt_status rapt_context_device(const rapt_context* context, rapt_device_info* info) {
  return guarded([&] {
    require(context, "context");
    const size_t size = checked_struct_size(info, "info");
    write_params(info, size, device_info_of(context->context->device()));
  });
}

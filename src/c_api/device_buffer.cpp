#include <utility>

#include "c_api/handles.hpp"
#include "c_api/params.hpp"
#include "c_api/tensor.hpp"

using namespace rapt::c_api;

rapt_status rapt_device_buffer_create(rapt_context* context, size_t bytes,
                                      rapt_device_buffer** buffer) {
  return guarded([&] {
    require(context, "context");
    require(buffer, "buffer");
    rapt::DeviceBuffer made(*context->context, bytes);
    *buffer = new rapt_device_buffer{context->context, std::move(made)};
  });
}

void rapt_device_buffer_destroy(rapt_device_buffer* buffer) {
  delete buffer;
}

rapt_status rapt_device_buffer_get_info(const rapt_device_buffer* buffer,
                                        rapt_device_buffer_info* info) {
  return guarded([&] {
    const rapt::DeviceBuffer& memory = require(buffer, "buffer")->buffer;
    const size_t size = checked_struct_size(info, "info");
    rapt_device_buffer_info result{};
    result.data = memory.data();
    result.bytes = memory.bytes();
    result.device = dl_device(memory.device());
    result.host_accessible = memory.host_accessible();
    write_params(info, size, result);
  });
}

rapt_status rapt_device_buffer_copy_from_host(rapt_device_buffer* buffer, const void* from,
                                              size_t bytes, size_t offset, void* stream) {
  return guarded([&] {
    require(buffer, "buffer");
    if (bytes) require(from, "from");
    buffer->buffer.copy_from_host(from, bytes, offset, stream);
  });
}

rapt_status rapt_device_buffer_copy_to_host(const rapt_device_buffer* buffer, void* to,
                                            size_t bytes, size_t offset, void* stream) {
  return guarded([&] {
    require(buffer, "buffer");
    if (bytes) require(to, "to");
    buffer->buffer.copy_to_host(to, bytes, offset, stream);
  });
}

#include "llm/engine/exchange_buffer.hpp"

namespace llm {

ExchangeBuffer::ExchangeBuffer(rapt::Context& context, int64_t bytes)
    : context_(&context), device_(context, static_cast<size_t>(bytes)) {
  if (!device_.host_accessible()) host_.resize(device_.bytes());
}

void ExchangeBuffer::to_device(int64_t bytes) {
  if (!host_.empty()) device_.copy_from_host(host_.data(), static_cast<size_t>(bytes));
}

void ExchangeBuffer::to_host(int64_t bytes) {
  if (host_.empty())
    context_->synchronize();
  else
    device_.copy_to_host(host_.data(), static_cast<size_t>(bytes));
}

}  // namespace llm

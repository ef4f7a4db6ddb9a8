#include "device_tensors.hpp"

namespace rapt_tool {

DeviceTensors::DeviceTensors(rapt::Context& context, StepTensors& tensors)
    : context_(context), tensors_(tensors) {}

rapt::TensorView DeviceTensors::view(const HostTensor& tensor) {
  rapt::TensorView view = tensor.view();
  view.device = context_.tensor_device();
  if (view.device.kind == rapt::DeviceKind::kCpu) return view;
  auto [at, is_new] = copies_.try_emplace(&tensor);
  if (is_new) {
    at->second = rapt::DeviceBuffer(context_, tensor.bytes());
    at->second.copy_from_host(tensor.data(), tensor.bytes());
  }
  view.data = at->second.data();
  return view;
}

rapt::KvCacheView DeviceTensors::cache() {
  return tensors_.geometry.view(view(tensors_.pool).data, /*layer=*/0, context_.tensor_device());
}

rapt::RunArgs DeviceTensors::run_args(const Step& step) {
  const rapt::AttentionSpec& spec = step.spec;
  rapt::RunArgs args{.q = view(tensors_.q), .out = view(tensors_.out)};
  if (spec.is_paged()) {
    const rapt::KvCacheView paged = cache();
    args.k = paged.k;
    args.v = paged.v;
  } else {
    args.k = view(tensors_.k);
    args.v = view(tensors_.v);
  }
  if (spec.needs_lse) args.lse = view(tensors_.lse);
  if (spec.alibi) args.alibi_slopes = view(tensors_.alibi_slopes);
  if (spec.sinks) args.sinks = view(tensors_.sinks);
  if (spec.custom_mask) args.custom_mask = view(tensors_.custom_mask);
  if (spec.kv_scales != rapt::KvScales::kNone) {
    args.k_scale = view(tensors_.k_scale);
    args.v_scale = view(tensors_.v_scale);
  }
  return args;
}

void DeviceTensors::fill_cache(const rapt::Attention& attention) {
  if (!attention.spec().is_paged()) return;
  rapt::WriteKvArgs args{.k = view(tensors_.k),
                         .v = view(tensors_.v),
                         .slot_mapping = view(tensors_.slot_mapping),
                         .cache = cache()};
  if (attention.spec().kv_scales != rapt::KvScales::kNone) {
    args.k_scale = view(tensors_.k_scale);
    args.v_scale = view(tensors_.v_scale);
  }
  attention.write_kv(args);
}

void DeviceTensors::fetch(HostTensor& tensor) {
  if (const auto copy = copies_.find(&tensor); copy != copies_.end())
    copy->second.copy_to_host(tensor.data(), tensor.bytes());
}

void DeviceTensors::fetch_outputs() {
  fetch(tensors_.out);
  fetch(tensors_.lse);
}

}  // namespace rapt_tool

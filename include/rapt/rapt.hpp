// Rapt: the attention layer of an LLM serving engine. This header is the whole C++ interface.
#pragma once

#include "rapt/attention.hpp"
#include "rapt/batch.hpp"
#include "rapt/context.hpp"
#include "rapt/device.hpp"
#include "rapt/device_buffer.hpp"
#include "rapt/dtype.hpp"
#include "rapt/error.hpp"
#include "rapt/graph_envelope.hpp"
#include "rapt/kv_cache.hpp"
#include "rapt/pack.hpp"
#include "rapt/page_allocator.hpp"
#include "rapt/sampling.hpp"
#include "rapt/select.hpp"
#include "rapt/spec.hpp"
#include "rapt/tensor.hpp"
#include "rapt/version.hpp"

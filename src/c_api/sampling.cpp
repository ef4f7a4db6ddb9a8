#include "rapt/sampling.hpp"

#include <vector>

#include "c_api/handles.hpp"
#include "c_api/params.hpp"
#include "c_api/tensor.hpp"

using namespace rapt::c_api;

rapt_status rapt_sample(rapt_context* context, const rapt_sample_args* args) {
  return guarded([&] {
    require(context, "context");
    const rapt_sample_args given = read_params(args, "args");
    const rapt::TensorView logits = view_of(require(given.logits, "args->logits"), "logits");
    require(given.tokens, "args->tokens");
    require(given.statuses, "args->statuses");
    rapt::check(logits.rank == 2 && logits.shape[0] >= 0 && logits.shape[0] <= INT32_MAX,
                "logits is ", logits.describe(), ": must be [rows, vocabulary], rows in [0, ",
                INT32_MAX, "]");
    const auto rows = static_cast<size_t>(logits.shape[0]);
    std::vector<rapt::SamplingParams> params(rows);
    for (size_t i = 0; i < rows; i++) {
      if (given.temperature) params[i].temperature = given.temperature[i];
      if (given.top_k) params[i].top_k = given.top_k[i];
      if (given.top_p) params[i].top_p = given.top_p[i];
      if (given.min_p) params[i].min_p = given.min_p[i];
      if (given.seed) params[i].seed = given.seed[i];
      if (given.offset) params[i].offset = given.offset[i];
    }
    std::vector<rapt::SampleStatus> statuses(rows);
    rapt::sample(*context->context, logits, params, {given.tokens, rows}, statuses);
    for (size_t i = 0; i < rows; i++)
      given.statuses[i] = static_cast<rapt_sample_status>(statuses[i]);
  });
}

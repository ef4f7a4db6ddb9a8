// Specs, options and selections across the boundary.
#pragma once

#include "rapt/rapt.h"
#include "rapt/select.hpp"
#include "rapt/spec.hpp"

namespace rapt::c_api {

AttentionSpec spec_of(const rapt_attention_spec* spec);
SelectOptions select_options_of(const rapt_select_options* options);
rapt_selection selection_of(const Selection& selection);

}  // namespace rapt::c_api

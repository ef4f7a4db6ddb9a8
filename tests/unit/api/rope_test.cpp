// write_kv() with rotary position embedding against fp64, on the CPU and on an emulated GPU, or on
// the GPU that RAPT_TEST_DEVICE names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "rapt/rapt.hpp"
#include "support/device_mirror.hpp"
#include "support/element.hpp"
#include "support/error_of.hpp"
#include "support/matrix.hpp"

namespace rapt::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Place {
  const char* name;
  std::string device, backend;
};

std::vector<Place> places() {
  std::vector<Place> all = {{"cpu", "cpu", "cpu"}, {"reference", "cpu", "reference"}};
#ifdef KERNEL_CACHE
  all.push_back({"gpu", test_device_or("emulated-sm80"), "flash_attention"});
#endif
  return all;
}

Context& context_on(const Place& place) {
#ifdef KERNEL_CACHE
  setenv("RAPT_CACHE_DIR", KERNEL_CACHE, 0);
#endif
  static std::map<std::string, std::unique_ptr<Context>> contexts;
  std::unique_ptr<Context>& context = contexts[place.device];
  if (!context)
    context = std::make_unique<Context>(
        ContextOptions{.device = place.device, .num_threads = 2, .check_device_indices = true});
  return *context;
}

enum class Queries { kNone, kInPlace, kApart };

struct Shape {
  DType dtype = DType::kBFloat16;
  int64_t query_heads = 4, kv_heads = 2, head_dim = 64, rotary_dim = 64;
  RopeStyle style = RopeStyle::kHalfSplit;
  DType positions = DType::kInt64;
  Queries queries = Queries::kInPlace;
  int64_t pad = 0;        // elements between the rows of a token
  int64_t table_pad = 0;  // floats between the rows of cos_sin
};

constexpr int64_t kPageSize = 4, kPages = 5, kMaxPosition = 3000;
constexpr std::byte kUntouched{0xa5};

// Five tokens, the third of them not written, and a row of padding behind them.
class Step {
 public:
  explicit Step(const Shape& shape)
      : shape_(shape),
        row_(shape.head_dim + shape.pad),
        token_(row_ * (shape.query_heads + 2 * shape.kv_heads)),
        bytes_(static_cast<int64_t>(size_of(shape.dtype))),
        table_row_(shape.rotary_dim + shape.table_pad),
        qkv_(static_cast<size_t>(kRows * token_ * bytes_)),
        q_out_(static_cast<size_t>(kRows * shape.query_heads * row_ * bytes_)),
        cache_k_(static_cast<size_t>(kPages * kPageSize * shape.kv_heads * row_ * bytes_)),
        cache_v_(cache_k_.size()),
        table_(static_cast<size_t>(kMaxPosition * table_row_) * sizeof(float)),
        positions_(kTokens * size_of(shape.positions)),
        slots_(kTokens * sizeof(int64_t)) {
    qkv_.fill(0xff), table_.fill(0xff);
    for (GuardedBuffer* buffer : {&q_out_, &cache_k_, &cache_v_})
      buffer->fill(static_cast<uint8_t>(kUntouched));
    for (int64_t row = 0; row < kRows * token_ / row_; row++)
      for (int64_t d = 0; d < shape.head_dim; d++)
        store(shape.dtype, qkv_.data() + (row * row_ + d) * bytes_,
              3 * std::sin(static_cast<double>(row * 67 + d * 13 + 1)));
    const int64_t pairs = shape.rotary_dim / 2;
    for (int64_t p = 0; p < kMaxPosition; p++)
      for (int64_t i = 0; i < pairs; i++) {
        const double angle =
            static_cast<double>(p) *
            std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(shape.rotary_dim));
        table_.as<float>()[p * table_row_ + i] = static_cast<float>(std::cos(angle));
        table_.as<float>()[p * table_row_ + pairs + i] = static_cast<float>(std::sin(angle));
      }
    for (int64_t t = 0; t < kTokens; t++) slots_.as<int64_t>()[t] = kSlots[t];
    for (int64_t t = 0; t < kTokens; t++) set_position(t, kPositions[t]);
    // Of a token that is not written, and has no queries, it is nobody's.
    if (shape.queries == Queries::kNone) set_position(2, 1 << 30);
    before_ = bytes_of(qkv_);
  }

  void set_position(int64_t token, int64_t position) {
    if (shape_.positions == DType::kInt64)
      positions_.as<int64_t>()[token] = position;
    else
      positions_.as<int32_t>()[token] = static_cast<int32_t>(position);
  }

  AttentionSpec spec() const {
    AttentionSpec spec;
    spec.num_query_heads = static_cast<int32_t>(shape_.query_heads);
    spec.num_kv_heads = static_cast<int32_t>(shape_.kv_heads);
    spec.head_dim_qk = static_cast<int32_t>(shape_.head_dim);
    spec.dtype = shape_.dtype;
    spec.page_size = kPageSize;
    return spec;
  }

  WriteKvArgs args() const {
    const Shape& s = shape_;
    const auto rows = [&](int64_t first, int64_t heads) {
      return TensorView::strided(qkv_.data() + first * row_ * bytes_, s.dtype,
                                 {kRows, heads, s.head_dim}, {token_, row_, 1});
    };
    const auto cache = [&](const GuardedBuffer& buffer) {
      return TensorView::strided(buffer.data(), s.dtype,
                                 {kPages, kPageSize, s.kv_heads, s.head_dim},
                                 {kPageSize * s.kv_heads * row_, s.kv_heads * row_, row_, 1});
    };
    RopeArgs rope{.positions = TensorView::contiguous(positions_.data(), s.positions, {kTokens}),
                  .cos_sin = TensorView::strided(table_.data(), DType::kFloat32,
                                                 {kMaxPosition, s.rotary_dim}, {table_row_, 1}),
                  .style = s.style};
    if (s.queries != Queries::kNone) rope.q = rope.q_out = rows(0, s.query_heads);
    if (s.queries == Queries::kApart)
      rope.q_out = TensorView::strided(q_out_.data(), s.dtype, {kRows, s.query_heads, s.head_dim},
                                       {s.query_heads * row_, row_, 1});
    return {.k = rows(s.query_heads, s.kv_heads),
            .v = rows(s.query_heads + s.kv_heads, s.kv_heads),
            .slot_mapping = TensorView::contiguous(slots_.data(), DType::kInt64, {kTokens}),
            .cache = {cache(cache_k_), cache(cache_v_)},
            .rope = rope};
  }

  // On the device, and back.
  void write(const Place& place) {
    Context& context = context_on(place);
    const Attention attention(context, spec(), {.backend = place.backend});
    WriteKvArgs args = this->args();
    if (place.device == "cpu") return attention.write_kv(args);
    DeviceMirror mirror(context);
    for (const GuardedBuffer* buffer :
         {&qkv_, &q_out_, &cache_k_, &cache_v_, &table_, &positions_, &slots_})
      mirror.put(*buffer);
    for (TensorView* view :
         {&args.k, &args.v, &args.slot_mapping, &args.cache.k, &args.cache.v, &args.rope->positions,
          &args.rope->cos_sin, &args.rope->q, &args.rope->q_out})
      *view = mirror.view(*view);
    std::optional<Error> error;
    try {
      attention.write_kv(args);
    } catch (const Error& thrown) {
      error = thrown;
    }
    context.synchronize();
    for (GuardedBuffer* buffer : {&qkv_, &q_out_, &cache_k_, &cache_v_}) mirror.fetch(*buffer);
    if (error) throw *error;
  }

  void expect_right() const {
    const Shape& s = shape_;
    // Every byte that no row below accounts for is as it was.
    std::vector<std::byte> qkv = before_, k = filled(cache_k_), v = k, q_out = filled(q_out_);
    for (int64_t t = 0; t < kTokens; t++) {
      for (int64_t h = 0; h < s.query_heads && s.queries != Queries::kNone; h++) {
        const bool apart = s.queries == Queries::kApart;
        const int64_t at = apart ? (t * s.query_heads + h) * row_ : t * token_ + h * row_;
        expect_rotated(t, t * token_ + h * row_, apart ? q_out_ : qkv_, at, apart ? q_out : qkv);
      }
      for (int64_t h = 0; h < s.kv_heads && kSlots[t] >= 0; h++) {
        const int64_t to = (kSlots[t] * s.kv_heads + h) * row_;
        const int64_t key = t * token_ + (s.query_heads + h) * row_;
        expect_rotated(t, key, cache_k_, to, k);
        std::memcpy(v.data() + to * bytes_, before_.data() + (key + s.kv_heads * row_) * bytes_,
                    static_cast<size_t>(s.head_dim * bytes_));
      }
    }
    EXPECT_EQ(qkv, bytes_of(qkv_));
    EXPECT_EQ(q_out, bytes_of(q_out_));
    EXPECT_EQ(k, bytes_of(cache_k_));
    EXPECT_EQ(v, bytes_of(cache_v_));
  }
  void expect_untouched() const {
    EXPECT_EQ(before_, bytes_of(qkv_));
    for (const GuardedBuffer* buffer : {&q_out_, &cache_k_, &cache_v_})
      EXPECT_EQ(filled(*buffer), bytes_of(*buffer));
  }

 private:
  static constexpr int64_t kTokens = 5, kRows = 6;
  static constexpr int64_t kSlots[kTokens] = {7, 0, -1, 19, 4};
  static constexpr int64_t kPositions[kTokens] = {0, 1, 77, kMaxPosition - 1, 1234};

  static std::vector<std::byte> bytes_of(const GuardedBuffer& buffer) {
    return {buffer.data(), buffer.data() + buffer.size()};
  }
  static std::vector<std::byte> filled(const GuardedBuffer& buffer) {
    return std::vector<std::byte>(buffer.size(), kUntouched);
  }

  // The row at element `to` of a buffer is the one at `from` of what came in, rotated; `whole` then
  // has it.
  void expect_rotated(int64_t token, int64_t from, const GuardedBuffer& buffer, int64_t to,
                      std::vector<std::byte>& whole) const {
    const int64_t pairs = shape_.rotary_dim / 2;
    const float* cos = table_.as<float>() + kPositions[token] * table_row_;
    const auto value = [&](int64_t d) {
      return double{load(shape_.dtype, before_.data() + (from + d) * bytes_)};
    };
    const auto got = [&](int64_t d) {
      return double{load(shape_.dtype, buffer.data() + (to + d) * bytes_)};
    };
    const auto expect_near = [&](int64_t d, double exact, double terms) {
      const double bound =
          unit_roundoff(shape_.dtype) * std::abs(exact) + 3 * 0x1p-24 * terms + 1e-7;
      EXPECT_NEAR(got(d), exact, bound) << "token " << token << ", element " << d;
    };
    for (int64_t i = 0; i < pairs; i++) {
      const bool interleaved = shape_.style == RopeStyle::kInterleaved;
      const int64_t a = interleaved ? 2 * i : i, b = interleaved ? a + 1 : a + pairs;
      const double x = value(a), y = value(b), c = cos[i], s = cos[pairs + i];
      expect_near(a, x * c - y * s, std::abs(x * c) + std::abs(y * s));
      expect_near(b, y * c + x * s, std::abs(y * c) + std::abs(x * s));
    }
    for (int64_t d = shape_.rotary_dim; d < shape_.head_dim; d++) EXPECT_EQ(got(d), value(d)) << d;
    std::memcpy(whole.data() + to * bytes_, buffer.data() + to * bytes_,
                static_cast<size_t>(shape_.head_dim * bytes_));
  }

  Shape shape_;
  int64_t row_, token_, bytes_, table_row_;  // row_ and token_ in elements, table_row_ in floats
  GuardedBuffer qkv_, q_out_, cache_k_, cache_v_, table_, positions_, slots_;
  std::vector<std::byte> before_;  // qkv_
};

class Rope : public testing::TestWithParam<Place> {
 protected:
  bool on_gpu() const { return GetParam().device != "cpu"; }
};
INSTANTIATE_TEST_SUITE_P(Places, Rope, testing::ValuesIn(places()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(Rope, rotates_keys_and_queries) {
  const auto check = [&](const Shape& shape) {
    SCOPED_TRACE(testing::Message() << to_string(shape.dtype) << " rotary " << shape.rotary_dim
                                    << " of " << shape.head_dim << ", padded by " << shape.pad
                                    << ", style " << static_cast<int>(shape.style) << ", queries "
                                    << static_cast<int>(shape.queries));
    Step step(shape);
    step.write(GetParam());
    step.expect_right();
  };
  for (const RopeStyle style : {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
    for (const Queries queries : {Queries::kNone, Queries::kInPlace, Queries::kApart}) {
      for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
        if (dtype == DType::kFloat32 && on_gpu()) continue;
        check({.dtype = dtype, .style = style, .queries = queries});
        check({.dtype = dtype, .rotary_dim = 32, .style = style, .queries = queries});
      }
      // Pairs and rows that no run of 16 bytes takes.
      check({.head_dim = 24, .rotary_dim = 18, .style = style, .queries = queries, .pad = 1});
      check({.query_heads = 3, .kv_heads = 3, .rotary_dim = 2, .style = style, .queries = queries});
      check({.style = style, .positions = DType::kInt32, .queries = queries, .table_pad = 1});
      check({.head_dim = 128,
             .rotary_dim = 128,
             .style = style,
             .queries = queries,
             .pad = 8,
             .table_pad = 4});
    }
  }
}

TEST_P(Rope, names_the_position_that_cos_sin_does_not_have) {
  for (const auto& [token, position, positions] :
       {std::tuple<int64_t, int64_t, DType>{0, -1, DType::kInt32},
        {2, kMaxPosition, DType::kInt64},  // not written, but its queries are rotated
        {4, int64_t{1} << 40, DType::kInt64}}) {
    Step step({.positions = positions});
    step.set_position(token, position);
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { step.write(GetParam()); }),
                AllOf(HasSubstr("rope.positions[" + std::to_string(token) + "] is " +
                                std::to_string(position) + ":"),
                      HasSubstr("rows 0 to 2999")));
    step.expect_untouched();
  }
}

}  // namespace
}  // namespace rapt::test

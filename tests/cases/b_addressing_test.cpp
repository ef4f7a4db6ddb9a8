// Public reports, section B: strides, index types, tables that say more than the lengths do.
#include "support/check.hpp"

namespace rapt::test {
namespace {

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Addressing, B01_a_slice_of_packed_qkv_gives_the_bits_of_a_copy) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16})
    for (KvLayout order : {KvLayout::kNHD, KvLayout::kHND}) {
      Problem copy{.spec = make_spec(dtype, 32, 4, 128),
                   .requests = {{1, 40}, {1, 17}, {1, 3}, {1, 64}}};
      copy.layout.order = order;
      Problem slice = copy;
      slice.layout.packed_qkv = true;  // row stride (32 + 4 + 4) * 128 = 5120
      on_every_backend(slice, [&](const Outcome& outcome, const Backend& backend) {
        const Outcome want = run(copy, backend);
        EXPECT_EQ(outcome.out, want.out);
        EXPECT_EQ(outcome.lse, want.lse);
      });
    }
}

TEST(Addressing, B01_every_stride_of_q_k_v_out_and_lse) {
  int variant = 0;
  for (KvShape shape : {KvShape::kPagesKv, KvShape::kKvPages, KvShape::kPacked})
    for (KvLayout order : {KvLayout::kNHD, KvLayout::kHND})
      for (int32_t num_layers : {0, 1, 3})
        for (std::vector<RequestLengths> batch :
             {std::vector<RequestLengths>{{1, 40}, {1, 7}}, {{9, 30}, {1, 33}, {20, 20}}}) {
          const DType dtype =
              std::array{DType::kFloat32, DType::kFloat16, DType::kBFloat16}[variant % 3];
          Problem problem{.spec = make_spec(dtype, 6, 2, 64), .requests = batch};
          problem.spec.page_size = variant % 2 ? 5 : 16;
          Layout& layout = problem.layout;
          layout.shape = shape;
          layout.order = order;
          layout.num_layers = num_layers;
          layout.layer = num_layers / 2;
          layout.manager_ratio = 1 + variant % 4;
          layout.packed_qkv = variant % 2;
          layout.q_head_pad = 8 * (variant % 3);
          layout.out_head_pad = 8 * (variant / 2 % 3);
          layout.padding_rows = variant % 5;
          layout.table_pad = variant % 4;
          layout.write_kv = variant % 3 == 2;
          variant++;
          expect_oracle(problem);
        }
}

// Rows that start at any multiple of the element's size.
TEST(Addressing, B01_rows_aligned_only_to_their_elements_are_right) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    for (int32_t pad : {1, 3}) {
      Problem problem{.spec = make_spec(dtype, 4, 2, 40), .requests = {{1, 20}, {17, 17}}};
      problem.layout.q_head_pad = problem.layout.out_head_pad = pad;
      expect_oracle(problem);
    }
}

TEST(Addressing, B05_index_tensors_of_the_wrong_type_are_refused_by_name) {
  Problem problem{.spec = make_spec(DType::kBFloat16, 4, 2, 64), .requests = {{1, 2}, {1, 1}}};
  problem.spec.page_size = 2;
  const Tensors tensors(problem);
  for (const Backend& backend : backends_for(problem.spec)) {
    SCOPED_TRACE(backend.describe());
    const Attention attention(context_of(backend), problem.spec, {.backend = backend.name});
    const int64_t wide[] = {0, 1};
    Batch batch = tensors.batch();
    batch.page_table = TensorView::contiguous(wide, DType::kInt64, {2, 1});
    const std::string error = error_of([&] { attention.plan(batch); });
    for (const char* part : {"page_table", "int64", "int32"})
      EXPECT_NE(error.find(part), std::string::npos) << error;

    std::vector<uint16_t> pool(4 * 2 * 2 * 64, 0x4141), rows(2 * 2 * 64, 0x3f80);
    const std::vector<uint16_t> before = pool;
    const int32_t slots[] = {0, 3};
    const TensorView view = TensorView::contiguous(pool.data(), DType::kBFloat16, {4, 2, 2, 64});
    const TensorView row = TensorView::contiguous(rows.data(), DType::kBFloat16, {2, 2, 64});
    const std::string written = error_of([&] {
      attention.write_kv({.k = row,
                          .v = row,
                          .slot_mapping = TensorView::contiguous(slots, DType::kInt32, {2}),
                          .cache = {.k = view, .v = view}});
    });
    for (const char* part : {"slot_mapping", "int64", "int32"})
      EXPECT_NE(written.find(part), std::string::npos) << written;
    EXPECT_EQ(pool, before);
  }
}

TEST(Addressing, B05_tables_with_strided_rows_are_read_and_strided_columns_refused) {
  Problem problem{.spec = make_spec(DType::kFloat32, 4, 2, 64), .requests = {{1, 30}, {3, 20}}};
  Tensors tensors(problem);
  const Expected expected = expect(problem, tensors.values());
  const Batch dense = tensors.batch();
  const int32_t* ids = static_cast<const int32_t*>(dense.page_table.data);
  const std::vector<int32_t> wide = {ids[0], ids[1], -1, 1 << 30, ids[2], ids[3], -1, 1 << 30};
  const std::vector<int32_t> spread = {ids[0], -1, ids[1], -1, ids[2], -1, ids[3], -1};
  for (const Backend& backend : backends_for(problem.spec)) {
    SCOPED_TRACE(backend.describe());
    const Attention attention(context_of(backend), problem.spec, {.backend = backend.name});
    Batch batch = dense;
    batch.page_table = TensorView::strided(wide.data(), DType::kInt32, {2, 2}, {4, 1});
    const Plan plan = attention.plan(batch);
    attention.run(plan, tensors.args(plan));
    EXPECT_EQ(verdict(problem, expected, tensors.collect()), "");

    batch.page_table = TensorView::strided(spread.data(), DType::kInt32, {2, 2}, {4, 2});
    EXPECT_NE(error_of([&] { attention.plan(batch); }), "");
  }
}

TEST(Addressing, B07_the_length_decides_how_many_pages_are_read) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    for (int32_t query_len : {1, 3, 32})
      for (float filling : {1e3f, std::numeric_limits<float>::quiet_NaN()}) {
        Problem exact{.spec = make_spec(dtype, 4, 2, 64), .requests = {{query_len, 32}}};
        exact.layout.permuted_pages = false;
        exact.layout.unread_k = exact.layout.unread_v = filling;
        Problem longer = exact;  // a third entry, naming the next page of the pool
        longer.layout.table_pad = 1;
        longer.layout.table_pad_id = 2;
        on_every_backend(longer, [&](const Outcome& outcome, const Backend& backend) {
          const Outcome want = run(exact, backend);
          EXPECT_EQ(outcome.out, want.out);
          EXPECT_EQ(outcome.lse, want.lse);
        });
      }
}

}  // namespace
}  // namespace rapt::test

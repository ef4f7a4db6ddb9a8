// Public reports, section B: strides, index types, tables that say more than the lengths do.
#include "support/check.hpp"
#include "support/element.hpp"

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
  for (DType dtype : some_of<DType>({DType::kBFloat16, DType::kFloat16}))
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
  const std::vector<DType> types = dtypes();
  int variant = 0;
  for (KvShape shape : {KvShape::kPagesKv, KvShape::kKvPages, KvShape::kPacked})
    for (KvLayout order : {KvLayout::kNHD, KvLayout::kHND})
      for (int32_t num_layers : {0, 1, 3})
        for (std::vector<RequestLengths> batch :
             {std::vector<RequestLengths>{{1, 40}, {1, 7}}, {{9, 30}, {1, 33}, {20, 20}}}) {
          const DType dtype = types[variant % types.size()];
          Problem problem{.spec = make_spec(dtype, 6, 2, 64), .requests = batch};
          problem.seed = variant + 1;
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

// Rows that start at any multiple of the element's size: right, or refused before anything is
// written.
TEST(Addressing, B01_rows_aligned_only_to_their_elements_are_right_or_refused) {
  for (DType dtype : dtypes())
    for (int32_t pad : {1, 3}) {
      Problem problem{.spec = make_spec(dtype, 4, 2, 64), .requests = {{1, 20}, {17, 17}}};
      problem.layout.q_head_pad = problem.layout.out_head_pad = pad;
      if (on_cpu()) {
        expect_oracle(problem);
        continue;
      }
      Tensors tensors(problem);
      for (const Backend& backend : backends_for(problem.spec)) {
        const Attention attention(context_of(backend), problem.spec, {.backend = backend.name});
        Placed placed(tensors, backend);
        const Plan plan = attention.plan(placed.batch());
        const std::string error = error_of([&] { attention.run(plan, placed.args(plan)); });
        EXPECT_NE(error.find("multiple of 16 bytes"), std::string::npos) << error;
        for (float out : placed.collect().out) ASSERT_EQ(out, load(dtype, "\xa5\xa5"));
      }
    }
}

// T = 5, H = 3, P = 16. What is stored is what was given, byte for byte.
TEST(Addressing, B04_only_the_named_slots_of_a_cache_change) {
  const std::vector<int64_t> slots = {0, 17, -1, 33, 16};
  const int64_t tokens = 5, heads = 3, page_size = 16, pages = 3;
  for (DType dtype : dtypes())
    for (int64_t dim : {64, 72, 80})
      for (KvShape shape : {KvShape::kPagesKv, KvShape::kPacked})
        for (KvLayout order : {KvLayout::kNHD, KvLayout::kHND}) {
          AttentionSpec spec = make_spec(dtype, 3, 3, static_cast<int32_t>(dim));
          SCOPED_TRACE(testing::Message() << to_string(dtype) << ' ' << dim << ' '
                                          << to_string(shape) << ' ' << to_string(order));
          const int64_t bytes = size_of(dtype), row = shape == KvShape::kPacked ? 2 * dim : dim;
          const int64_t page = 2 * page_size * heads * dim,
                        v_at = shape == KvShape::kPacked ? dim : page / 2;
          const bool nhd = order == KvLayout::kNHD;
          // Keys and values are slices of rows [q | k | v].
          const int64_t token_stride = 3 * heads * dim;
          GuardedBuffer qkv(tokens * token_stride * bytes), pool(pages * page * bytes),
              slot_bytes(slots.size() * sizeof(int64_t));
          for (int64_t i = 0; i < tokens * token_stride; i++)
            store(dtype, qkv.data() + i * bytes, normal_of(3, i));
          std::copy(slots.begin(), slots.end(), slot_bytes.as<int64_t>());
          const auto rows = [&](int64_t first) {
            return TensorView::strided(qkv.data() + first * bytes, dtype, {tokens, heads, dim},
                                       {token_stride, dim, 1});
          };
          const auto cache = [&](int64_t first) {
            return TensorView::strided(
                pool.data() + first * bytes, dtype, {pages, page_size, heads, dim},
                {page, nhd ? heads * row : row, nhd ? row : page_size * row, 1});
          };
          for (const Backend& backend : backends_for(spec)) {
            SCOPED_TRACE(backend.describe());
            pool.fill(0xa5);
            std::vector<std::byte> want(pool.size(), std::byte{0xa5});
            Context& context = context_of(backend);
            const Attention attention(context, spec, {.backend = backend.name});
            DeviceMirror mirror(context);
            for (const GuardedBuffer* buffer : {&qkv, &pool, &slot_bytes}) mirror.put(*buffer);
            attention.write_kv(
                {.k = mirror.view(rows(heads * dim)),
                 .v = mirror.view(rows(2 * heads * dim)),
                 .slot_mapping = mirror.view(
                     TensorView::contiguous(slot_bytes.data(), DType::kInt64, {tokens})),
                 .cache = {.k = mirror.view(cache(0)), .v = mirror.view(cache(v_at))}});
            context.synchronize();
            mirror.fetch(pool);
            mirror.check_bands();
            for (int64_t t = 0; t < tokens; t++)
              for (int64_t h = 0; h < heads && slots[t] >= 0; h++)
                for (int64_t part = 0; part < 2; part++) {
                  const int64_t offset = slots[t] % page_size;
                  const int64_t to = slots[t] / page_size * page + part * v_at +
                                     (nhd ? offset * heads + h : h * page_size + offset) * row;
                  const int64_t from = t * token_stride + ((part + 1) * heads + h) * dim;
                  std::copy_n(qkv.data() + from * bytes, dim * bytes, &want[to * bytes]);
                }
            ASSERT_TRUE(std::equal(want.begin(), want.end(), pool.data()));
            ASSERT_TRUE(pool.slack_holds(0xa5));
          }
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
    DeviceMirror mirror(context_of(backend));
    mirror.put(pool), mirror.put(rows);
    mirror.put(slots, sizeof slots);
    const TensorView view =
        mirror.view(TensorView::contiguous(pool.data(), DType::kBFloat16, {4, 2, 2, 64}));
    const TensorView row =
        mirror.view(TensorView::contiguous(rows.data(), DType::kBFloat16, {2, 2, 64}));
    const std::string written = error_of([&] {
      attention.write_kv(
          {.k = row,
           .v = row,
           .slot_mapping = mirror.view(TensorView::contiguous(slots, DType::kInt32, {2})),
           .cache = {.k = view, .v = view}});
    });
    mirror.fetch(pool);
    for (const char* part : {"slot_mapping", "int64", "int32"})
      EXPECT_NE(written.find(part), std::string::npos) << written;
    EXPECT_EQ(pool, before);
  }
}

TEST(Addressing, B05_tables_with_strided_rows_are_read_and_strided_columns_refused) {
  Problem problem{.spec = make_spec(finest_dtype(), 4, 2, 64), .requests = {{1, 30}, {3, 20}}};
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
    Placed placed(tensors, backend);
    placed.mirror().put(wide);
    const TensorView of_host = TensorView::strided(wide.data(), DType::kInt32, {2, 2}, {4, 1});
    for (const TensorView& table : {of_host, placed.mirror().view(of_host)}) {
      batch.page_table = table;
      const Plan plan = attention.plan(batch);
      attention.run(plan, placed.args(plan));
      EXPECT_EQ(verdict(problem, expected, placed.collect()), "");
    }

    batch.page_table = TensorView::strided(spread.data(), DType::kInt32, {2, 2}, {4, 2});
    EXPECT_NE(error_of([&] { attention.plan(batch); }), "");
  }
}

TEST(Addressing, B07_the_length_decides_how_many_pages_are_read) {
  for (DType dtype : dtypes())
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

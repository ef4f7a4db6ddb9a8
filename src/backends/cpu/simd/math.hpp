// exp2, tanh and maxima on whatever Vec the including simd header defines. Coefficients are minimax
// fits of the relative error (Remez), the bounds below are those of the fits plus rounding; tests
// measure them.

namespace rapt::cpu {
namespace {

// 2^x for x <= 126, within 2 ulp; 0 or a subnormal below -125, 0 of -inf, NaN of NaN, 1 of 0.
inline Vec exp2_accurate(Vec x) {
  x = max(set1(-200.0f), x);
  const Vec n = round_nearest(x), f = x - n;
  Vec p = set1(0.000155946721f);
  p = fma(p, f, set1(0.001340664359f));
  p = fma(p, f, set1(0.009617692993f));
  p = fma(p, f, set1(0.05550310552f));
  p = fma(p, f, set1(0.2402265278f));
  p = fma(p, f, set1(0.693147215f));
  p = fma(p, f, set1(1.0f));
  return scale_by_power_of_2(p, n);
}

// The same within 3e-6: for probabilities that are rounded to bf16, a thousandth of that rounding,
// and few enough parts for the lse that comes of their sum.
inline Vec exp2_fast(Vec x) {
  x = max(set1(-200.0f), x);
  const Vec n = round_nearest(x), f = x - n;
  Vec p = set1(0.009570101863f);
  p = fma(p, f, set1(0.05591786034f));
  p = fma(p, f, set1(0.2402474483f));
  p = fma(p, f, set1(0.6931218147f));
  p = fma(p, f, set1(0.9999992614f));
  return scale_by_power_of_2(p, n);
}

// At most 3 ulp everywhere, so that cap * tanh(s / cap) keeps s where s is tiny; -1 and 1 at the
// infinities, NaN of NaN.
inline Vec tanh(Vec x) {
  const Vec magnitude = abs(x), square = x * x;
  Vec p = set1(-0.005648317191f);
  p = fma(p, square, set1(0.02058982714f));
  p = fma(p, square, set1(-0.05372512681f));
  p = fma(p, square, set1(0.1333127444f));
  p = fma(p, square, set1(-0.3333327606f));
  const Vec near = fma(p * square, x, x);
  // 1 - 2 / (e^2|x| + 1), e^2|x| by exp2; past 10 the quotient is below half an ulp of 1.
  const Vec e = exp2_accurate(min(set1(10.0f), magnitude) * set1(2.885390082f));
  const Vec far = copy_sign(set1(1.0f) - set1(2.0f) / (e + set1(1.0f)), x);
  return select(less(magnitude, set1(0.625f)), near, far);
}

// The largest of each kLanes neighbouring lanes, in all of them.
template <int kLanes>
inline Vec group_max(Vec x) {
  if constexpr (kLanes == 1) {
    return x;
  } else {
    x = group_max<kLanes / 2>(x);
    return max(x, swap_lanes<kLanes / 2>(x));
  }
}

}  // namespace
}  // namespace rapt::cpu

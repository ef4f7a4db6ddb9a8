// What stands between a Llama's products, as device text: NVRTC takes it as it stands, and so does
// Rapt's emulator (docs/emulator.md), whose names for the host's compiler are in its ptx/.
#ifdef __CUDACC__
#define DEVICE static __device__ __forceinline__
#define GLOBAL __global__

using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;

constexpr u32 kWarpLanes = 32;

DEVICE u32 thread_index() {
  return threadIdx.x;
}
DEVICE u32 block_index_x() {
  return blockIdx.x;
}
DEVICE void sync_block() {
  __syncthreads();
}
DEVICE float shuffle_xor(float value, int bits) {
  return __shfl_xor_sync(0xFFFFFFFF, value, bits);
}
template <class T>
DEVICE T* shared_base() {
  extern __shared__ float dynamic_shared[];
  return reinterpret_cast<T*>(dynamic_shared);
}
// PTX ISA, cvt: to nearest, ties to even. Two elements to a register, the first one lower.
struct Bf16 {
  DEVICE u32 pack(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  DEVICE float low(u32 pair) { return __uint_as_float(pair << 16); }
};
struct F16 {
  DEVICE u32 pack(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  DEVICE float low(u32 pair) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<u16>(pair)));
    return x;
  }
};
#else
#include <cmath>

#include "ptx/math.cuh"
#include "ptx/threads.cuh"
using namespace rapt::device;
#endif

// Elements are numbered through; blocks of one size share them.
DEVICE i64 element_index(int num_threads) {
  return static_cast<i64>(block_index_x()) * num_threads + thread_index();
}

DEVICE u16 narrow(float value, bool is_bf16) {
  return static_cast<u16>(is_bf16 ? Bf16::pack(value, 0) : F16::pack(value, 0));
}

// out [T, dim] = table [vocab, dim] at tokens [T].
extern "C" GLOBAL void llm_embed(float* out, const float* table, const int* tokens, i64 num_elems,
                                 int dim, int num_threads) {
  const i64 i = element_index(num_threads);
  if (i >= num_elems) return;
  const i64 row = i / dim;
  out[i] = table[static_cast<i64>(tokens[row]) * dim + i % dim];
}

// out [R, dim] = x / sqrt(mean(x^2) + epsilon) * weight, of the rows [R] of x, or of all in turn
// where there is no list. A block of whole warps for a row.
extern "C" GLOBAL void llm_rms_norm(float* out, const float* x, const float* weight,
                                    const int* rows, int dim, float epsilon, int num_threads) {
  const i64 row = block_index_x();
  const float* from = x + (rows ? rows[row] : row) * dim;
  const int thread = static_cast<int>(thread_index());
  const int lane = thread % kWarpLanes, warp = thread / kWarpLanes;
  float sum = 0;
  for (int i = thread; i < dim; i += num_threads) sum += from[i] * from[i];
  for (int bits = kWarpLanes / 2; bits > 0; bits /= 2) sum += shuffle_xor(sum, bits);
  float* const warp_sums = shared_base<float>();
  if (lane == 0) warp_sums[warp] = sum;
  sync_block();
  float total = 0;
  for (int i = 0; i < num_threads / static_cast<int>(kWarpLanes); i++) total += warp_sums[i];
  const float scale = 1 / sqrtf(total / dim + epsilon);
  for (int i = thread; i < dim; i += num_threads) out[row * dim + i] = from[i] * scale * weight[i];
}

// heads [T, num_heads, head_dim], 16 bits = qkv of the same shape, fp32, whose first num_rotated
// heads are turned by the angles of cosines and sines [T, head_dim / 2]: neighbours together, or
// halves. A thread for a pair.
extern "C" GLOBAL void llm_rotate(u16* heads, const float* qkv, const float* cosines,
                                  const float* sines, i64 num_pairs, int num_heads, int num_rotated,
                                  int head_dim, bool is_halves, bool is_bf16, int num_threads) {
  const i64 index = element_index(num_threads);
  if (index >= num_pairs) return;
  const int half = head_dim / 2, pair = static_cast<int>(index % half);
  const i64 head = index / half, token = head / num_heads;
  const i64 first = head * head_dim + (is_halves ? pair : 2 * pair);
  const i64 second = first + (is_halves ? half : 1);
  float a = qkv[first], b = qkv[second];
  if (head % num_heads < num_rotated) {
    const float cosine = cosines[token * half + pair], sine = sines[token * half + pair];
    const float turned = a * cosine - b * sine;
    b = a * sine + b * cosine;
    a = turned;
  }
  heads[first] = narrow(a, is_bf16);
  heads[second] = narrow(b, is_bf16);
}

extern "C" GLOBAL void llm_widen(float* out, const u16* from, i64 num_elems, bool is_bf16,
                                 int num_threads) {
  const i64 i = element_index(num_threads);
  if (i < num_elems) out[i] = is_bf16 ? Bf16::low(from[i]) : F16::low(from[i]);
}

// out [T, hidden] = silu(gate) * up of gate_up [T, 2, hidden].
extern "C" GLOBAL void llm_swiglu(float* out, const float* gate_up, i64 num_elems, int hidden,
                                  int num_threads) {
  const i64 i = element_index(num_threads);
  if (i >= num_elems) return;
  const i64 at = i / hidden * 2 * hidden + i % hidden;
  const float gate = gate_up[at];
  out[i] = gate / (1 + expf(-gate)) * gate_up[at + hidden];
}

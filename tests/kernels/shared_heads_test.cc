#include <cmath>
#include <utility>

#include "kernels/attention.h"
#include "kernels/memory/storage.h"
#include "tests/kernels/bf16_arrays.h"

namespace tandem::kernels {
namespace {

// Attention with heads of keys and values that several heads of queries share.
template <class T>
struct SharedHeads {
  static constexpr int64_t kTokens = 100, kHeads = 4, kDepth = 16;
  int64_t kv_heads;
  Array<T> q, k, v, output, grad_output, grad_q, grad_k, grad_v;
  Array<Compute<T>> log_sum_exp;
  Array<int64_t> offsets, row_index;

  explicit SharedHeads(int64_t heads)
      : kv_heads(heads),
        q(Shape{kTokens, kHeads, kDepth}),
        k(Shape{kTokens, heads, kDepth}),
        v(k),
        output(q),
        grad_output(q),
        grad_q(q),
        grad_k(k),
        grad_v(k),
        log_sum_exp(Shape{kTokens, kHeads}),
        offsets({4}),
        row_index({kTokens}) {
    offsets.values = {0, 33, 35, kTokens, 0};
    for (int64_t t = 0; t < kTokens; ++t) row_index[t] = kTokens + t;
  }
  void Both(Stream& stream) {
    const AttentionArgs args{q, k, v, offsets, row_index, kTokens, true, 0.25, 0.2f, {1, 2}, 3};
    AttentionForward({args, output, log_sum_exp}, stream);
    AttentionBackward({args, output, log_sum_exp, grad_output, grad_q, grad_k, grad_v}, stream);
  }
};

template <class T>
T Rounded(double x) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return ToBFloat16(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

template <class T>
double Widened(T x) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return ToFloat(x);
  else
    return static_cast<double>(x);
}

template <class T>
void SharedHeadsAreCopies(int64_t kv_heads) {
  using Case = SharedHeads<T>;
  Case shared(kv_heads), copied(Case::kHeads);
  const auto fill = [](Array<T>& a, uint64_t seed) {
    const Array<double> random = RandomArray<double>(a.shape, seed);
    for (int64_t i = 0; i < a.size(); ++i) a[i] = Rounded<T>(random[i]);
  };
  fill(shared.q, 1);
  fill(shared.k, 2);
  fill(shared.v, 3);
  fill(shared.grad_output, 4);
  copied.q = shared.q;
  copied.grad_output = shared.grad_output;
  const int64_t sharing = Case::kHeads / kv_heads;
  const auto place = [&](int64_t i) {  // of an element of `copied` in `shared`
    const int64_t d = i % Case::kDepth, h = i / Case::kDepth % Case::kHeads,
                  t = i / Case::kDepth / Case::kHeads;
    return (t * kv_heads + h / sharing) * Case::kDepth + d;
  };
  for (int64_t i = 0; i < copied.k.size(); ++i) {
    copied.k[i] = shared.k[place(i)];
    copied.v[i] = shared.v[place(i)];
  }
  TestStream stream(2);
  shared.Both(stream);
  copied.Both(stream);
  ExpectSameBits(shared.output, copied.output);
  ExpectSameBits(shared.grad_q, copied.grad_q);
  Array<double> k(shared.grad_k.shape), v = k;
  for (int64_t i = 0; i < copied.k.size(); ++i) {
    k[place(i)] += Widened(copied.grad_k[i]);
    v[place(i)] += Widened(copied.grad_v[i]);
  }
  const double rounding = SizeOf(DTypeOf<T>()) == 2 ? 1.0 / 256 : 1e-6;
  for (int64_t i = 0; i < k.size(); ++i) {
    EXPECT_NEAR(Widened(shared.grad_k[i]), k[i], rounding * std::max(1.0, std::abs(k[i])));
    EXPECT_NEAR(Widened(shared.grad_v[i]), v[i], rounding * std::max(1.0, std::abs(v[i])));
  }
}

TEST(SharedHeadsTest, SharedHeadsOfKeysAndValuesAreCopiesWhoseGradientsAdd) {
  for (const int64_t kv_heads : {1, 2}) {
    SharedHeadsAreCopies<float>(kv_heads);
    SharedHeadsAreCopies<double>(kv_heads);
    SharedHeadsAreCopies<BFloat16>(kv_heads);
  }
}

}  // namespace
}  // namespace tandem::kernels

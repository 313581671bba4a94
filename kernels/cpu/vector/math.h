// exp, log, sigmoid and related functions of one element, without branches, so that loops over them
// vectorise. The f32 versions are ours, because the C library's bits differ between versions and
// processors. Constants come from interpolation at Chebyshev nodes in extended precision; each
// function states its error. The f64 overloads are the reference and call std. Code uses only +, -,
// *, /, comparisons and explicit fused multiply-adds. So scalar and vector code agree bit for bit.
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tandem::kernels {

inline constexpr double kLog2E = 1.44269504088896340736;  // log2(e)

// a b + c, rounded once. One instruction on processors with FMA, a slow call in the baseline copy.
inline float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double Fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

inline double Exp(double x) { return std::exp(x); }
inline double Log(double x) { return std::log(x); }
inline double Log1p(double x) { return std::log1p(x); }
inline double Sqrt(double x) { return std::sqrt(x); }
inline float Sqrt(float x) { return std::sqrt(x); }
inline double Abs(double x) { return std::fabs(x); }
inline float Abs(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffffu); }

// Relative error below 1.5e-7. 0 below -86.6 (no denormals), infinity above 88.72. x = n log 2 + r,
// with log 2 in two parts (Cody and Waite 1980); exp(r) = 1 + r + r^2 q(r).
inline float Exp(float x) {
  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLow = -86.6f, kHigh = 88.72283f, kRound = 12582912.0f;
  float y = x < kLow ? kLow : x;
  y = y > kHigh ? kHigh : y;
  const float shifted = y * static_cast<float>(kLog2E) + kRound;
  const float n = shifted - kRound;
  const float r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  float q = 1.392625083e-03f;
  q = q * r + 8.363232884e-03f;
  q = q * r + 4.166655421e-02f;
  q = q * r + 1.666657667e-01f;
  q = q * r + 5.000000000e-01f;
  const float p = (q * r * r + r) + 1.0f;
  // Computes 2^(n - 1) and doubles the result at the end, because n reaches 128.
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 126u) << 23);
  float result = p * power * 2.0f;
  result = x < kLow ? 0.0f : result;
  return x > kHigh ? std::numeric_limits<float>::infinity() : result;
}

inline double Exp2(double x) { return std::exp2(x); }
// 2^x; exactly 1 at 0. x = n + r with an integer n; 2^r = 1 + r q(r). Coefficients of q come
// highest first. n is added to the exponent bits.
// REQUIRES: -125.5 <= x < 127.
template <class... Coefficients>
inline float Exp2BySeries(float x, float highest, Coefficients... coefficients) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  const float shifted = x + kRound;
  const float r = x - (shifted - kRound);
  float q = highest;
  ((q = Fma(q, r, coefficients)), ...);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(Fma(q, r, 1.0f)) +
                              (std::bit_cast<uint32_t>(shifted) << 23));
}
// Returns 0 for x below -125.5 (no denormals), otherwise y.
inline float ZeroBelowRange(float x, float y) {
  return std::bit_cast<float>(x < -125.5f ? 0u : std::bit_cast<uint32_t>(y));
}

// Relative error below 1e-7.
// REQUIRES: -125.5 <= x < 127.
inline float Exp2InRange(float x) {
  return Exp2BySeries(x, 1.545316295e-04f, 1.339086336e-03f, 9.618082557e-03f, 5.550357114e-02f,
                      2.402265076e-01f, 6.931471880e-01f);
}
// 2^x with the same error; 0 below -125.5.
// REQUIRES: x < 127.
inline float Exp2(float x) { return ZeroBelowRange(x, Exp2InRange(x)); }
// Like Exp2, but with a relative error below 3e-6 and two multiply-adds less, for results that are
// rounded to bf16.
inline float Exp2ForBFloat16(float x) {
  return ZeroBelowRange(
      x, Exp2BySeries(x, 9.582869531e-03f, 5.590646796e-02f, 2.402409859e-01f, 6.931241885e-01f));
}

// Clamps x to [low, high], for low < 0 < high. Compares integers, because compilers turn float
// comparisons with constants into branches but integer ones into minima. A NaN becomes a bound or
// stays.
inline float Clamp(float x, float low, float high) {
  const int32_t below_high = std::min(std::bit_cast<int32_t>(x), std::bit_cast<int32_t>(high));
  return std::bit_cast<float>(
      std::min(static_cast<uint32_t>(below_high), std::bit_cast<uint32_t>(low)));
}

// Natural logarithm of a positive normal number. Relative error below 2e-7 (absolute near 1). Minus
// infinity at 0, NaN below 0.
// x = 2^k m with m in [sqrt 1/2, sqrt 2); log m = 2 atanh((m - 1) / (m + 1)) by its series.
inline float Log(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int32_t k = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(k) << 23));
  const float f = m - 1.0f;
  const float s = f / (2.0f + f);
  const float z = s * s;
  float series = 0.22222222f;
  series = series * z + 0.28571429f;
  series = series * z + 0.4f;
  series = series * z + 0.66666667f;
  const float n = static_cast<float>(k);
  float result = n * 0.693359375f + (2.0f * s + (s * z * series + n * -2.12194440e-4f));
  result = x == std::numeric_limits<float>::infinity() ? x : result;
  result = x == 0.0f ? -std::numeric_limits<float>::infinity() : result;
  return x >= 0.0f ? result : std::numeric_limits<float>::quiet_NaN();
}

inline double Log2(double x) { return std::log2(x); }
// Relative error below 3e-7 (absolute near 1).
inline float Log2(float x) { return Log(x) * static_cast<float>(kLog2E); }

// log(1 + x) for x >= 0, accurate for small x: corrects the rounding of 1 + x to first order.
inline float Log1p(float x) {
  const float u = 1.0f + x;
  return Log(u) + (x - (u - 1.0f)) / u;
}

// 1 / (1 + exp(-x)), absolute error below 1.2e-7. Never below 2^-80, so products with it avoid
// denormals, which are slow. For a NaN, any number in (0, 1].
inline double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline float Sigmoid(float x) {
  return 1.0f / (1.0f + Exp2InRange(Clamp(x * static_cast<float>(-kLog2E), -80.0f, 80.0f)));
}

// The standard normal distribution at x: the probability of a value below x, and the density.
template <class T>
struct Normal {
  T below, density;
};

inline Normal<double> NormalAt(double x) {
  return {0.5 * std::erfc(-x * 0.70710678118654752440),
          0.39894228040143267794 * std::exp(-0.5 * x * x)};
}

// Absolute error below 1.5e-7; exp(-x^2 / 2) never falls below 2^-80, to avoid denormals.
// erfc(z) = exp(-z^2) t p(t) with t = 1 / (1 + z / 2): Abramowitz and Stegun 7.1.26 with more
// terms.
inline Normal<float> NormalAt(float x) {
  const float t = 1.0f / Fma(0.35355339f, Abs(x), 1.0f);
  float p = -5.235712471e-02f;
  p = Fma(p, t, 2.540236000e-01f);
  p = Fma(p, t, -4.292615690e-01f);
  p = Fma(p, t, 2.188417494e-01f);
  p = Fma(p, t, 8.622662008e-03f);
  p = Fma(p, t, 1.903893511e-01f);
  p = Fma(p, t, 2.455030781e-01f);
  p = Fma(p, t, 2.821437503e-01f);
  p = Fma(p, t, 2.820944907e-01f);
  const float e = Exp2InRange(Clamp(x * x * -0.7213475204f, -80.0f, 1.0f));
  const float tail = 0.5f * p * t * e;
  return {x < 0.0f ? tail : 1.0f - tail, 0.39894228f * e};
}

}  // namespace tandem::kernels

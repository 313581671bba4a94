#include <vector>

#include "kernels/base/check.h"
#include "kernels/cpu/matmul/onednn_matmul.h"

// Correct but slow stand-ins for programs that must run without oneDNN (tests/gpu). `tandem` does
// not contain them.
namespace tandem::kernels {

bool MatmulTakesPanels(DType) { return false; }

void OneThreadMatmul(const MatmulShape& s, const void* a, const void* b, const float* bias,
                     void* c) noexcept {
  TANDEM_CHECK(s.operand == DType::F32 && s.result == DType::F32 && !s.panels) << NameOf(s.operand);
  const auto *left = static_cast<const float*>(a), *right = static_cast<const float*>(b);
  auto* to = static_cast<float*>(c);
  std::vector<float> row(static_cast<size_t>(s.n));
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j)
      row[static_cast<size_t>(j)] =
          (bias == nullptr ? 0 : bias[j]) + (s.accumulate ? to[i * s.n + j] : 0);
    for (int64_t k = 0; k < s.k; ++k) {
      const float factor = left[s.transpose_a ? k * s.m + i : i * s.k + k];
      for (int64_t j = 0; j < s.n; ++j) row[static_cast<size_t>(j)] += factor * right[k * s.n + j];
    }
    for (int64_t j = 0; j < s.n; ++j) to[i * s.n + j] = row[static_cast<size_t>(j)];
  }
}

const char* MatmulImplementation(const MatmulShape&) { return "plain loops"; }

}  // namespace tandem::kernels

#include "kernels/cpu/matmul/small_matmul.h"

#include <algorithm>
#include <cmath>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/base/check.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/random_arrays.h"

namespace tandem::kernels {
namespace {

// An array that ends where mapped memory ends: an access behind it crashes.
template <class T>
class GuardedArray {
 public:
  explicit GuardedArray(const Array<T>& from) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    const size_t bytes = static_cast<size_t>(from.size()) * sizeof(T);
    pages_ = (bytes + page_ - 1) / page_;
    void* memory = mmap(nullptr, (pages_ + 1) * page_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TANDEM_CHECK(memory != MAP_FAILED);
    memory_ = static_cast<char*>(memory);
    TANDEM_CHECK_EQ(mprotect(memory_ + pages_ * page_, page_, PROT_NONE), 0);
    data_ = reinterpret_cast<T*>(memory_ + pages_ * page_ - bytes);
    std::copy_n(from.values.data(), from.size(), data_);
  }
  ~GuardedArray() { munmap(memory_, (pages_ + 1) * page_); }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  T* data() const { return data_; }

 private:
  const size_t page_;
  size_t pages_ = 0;
  char* memory_ = nullptr;
  T* data_ = nullptr;
};

// Each element sums its terms in ascending depth, by fused multiply-adds. The kernel touches
// nothing behind the last row of a or c.
// Another thread may own that memory, or it may hold numbers whose products take a hundred times as
// long.
template <class T>
void ExpectProducts() {
  constexpr int64_t kDepth = 7;
  for (int64_t rows = 0; rows <= 2 * kTileRows + 1; ++rows) {
    for (const int64_t columns : {16, 48, 64, 80}) {
      for (const bool transposed : {false, true}) {
        for (const bool accumulate : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << rows << " x " << columns << (transposed ? ", a transposed" : "")
                       << (accumulate ? ", added" : ""));
          const Array<T> a = RandomArray<T>({rows, kDepth}, 1),
                         b = RandomArray<T>({kDepth, columns}, 2),
                         before = RandomArray<T>({rows, columns}, 3);
          const int64_t a_row = transposed ? 1 : kDepth, a_depth = transposed ? rows : 1;
          const GuardedArray<T> guarded_a(a), guarded_b(b), c(before);
          RowPrefetch prefetch;
          prefetch.Add(guarded_b.data(), columns * static_cast<int64_t>(sizeof(T)), kDepth,
                       columns * static_cast<int64_t>(sizeof(T)));
          prefetch.SpreadOver(rows * columns);
          SmallMatmul(rows,
                      SmallOperands<T>{guarded_a.data(), a_row, a_depth, guarded_b.data(), columns,
                                       c.data(), columns},
                      prefetch, [&](int64_t) {
                        return TileExtent{0, kDepth, 0, columns, accumulate};
                      });
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < columns; ++j) {
              T sum = accumulate ? before[i * columns + j] : T(0);
              for (int64_t d = 0; d < kDepth; ++d)
                sum = std::fma(a[i * a_row + d * a_depth], b[d * columns + j], sum);
              ASSERT_EQ(c.data()[i * columns + j], sum) << i << ", " << j;
            }
          }
        }
      }
    }
  }
}

TEST(SmallMatmulTest, TilesAreWholeProductsAndTouchNoRowBehind) {
  ForEachInstructionSet([](InstructionSet) {
    ExpectProducts<float>();
    ExpectProducts<double>();
  });
}

}  // namespace
}  // namespace tandem::kernels

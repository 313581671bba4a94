#include "kernels/cpu/matmul/matmul_pack.h"

#include "kernels/cpu/vector/parallel.h"
#include "tests/kernels/bf16_arrays.h"
#include "tests/kernels/instruction_sets.h"

namespace tandem::kernels {
namespace {

template <class T>
Array<T> Operand(Shape shape) {
  const Array<float> x = RandomArray<float>(shape, 1);
  if constexpr (std::is_same_v<T, BFloat16>)
    return Rounded(x);
  else
    return x;
}

// Leaves guard elements behind the end: elements that a copy does not write keep this value.
template <class T>
Array<T> Unwritten(int64_t count) {
  Array<T> x({count + 100});
  for (T& value : x.values) std::memset(static_cast<void*>(&value), 0x5a, sizeof(T));
  return x;
}

// Packs panel by panel as the header says, one element at a time.
template <class T>
Array<T> PanelsByDefinition(const StoredMatrix<T>& b, int64_t panel, int64_t depth) {
  constexpr int64_t kPerWord = 4 / static_cast<int64_t>(sizeof(T));
  Array<T> panels = Unwritten<T>(depth * kPanelColumns);
  for (int64_t d = 0; d < depth; ++d) {
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      const int64_t column = panel * kPanelColumns + c;
      const int64_t place = b.transposed ? column * b.stride + d : d * b.stride + column;
      panels[(d / kPerWord * kPanelColumns + c) * kPerWord + d % kPerWord] =
          d < b.k && column < b.n ? b.data[place] : T{};
    }
  }
  return panels;
}

template <class T>
void CheckPanels() {
  for (const auto& [k, n] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 17}, {64, 64}, {65, 130}, {33, 63}, {96, 65}}) {
    for (const bool transposed : {false, true}) {
      const Array<T> stored = Operand<T>(transposed ? Shape{n, k} : Shape{k, n});
      const StoredMatrix<T> b{stored.values.data(), k, n, transposed ? k : n, transposed};
      const int64_t depth = RoundUp(k, kPanelDepth<T>) + kPanelDepth<T>;  // and a step of zeros
      for (int64_t panel = 0; panel * kPanelColumns < n; ++panel) {
        SCOPED_TRACE(testing::Message() << k << " x " << n << (transposed ? " transposed" : "")
                                        << ", panel " << panel);
        const Array<T> wanted = PanelsByDefinition(b, panel, depth);
        ForEachInstructionSet([&](InstructionSet) {
          Array<T> found = Unwritten<T>(depth * kPanelColumns);
          PackPanel(b, panel, 0, kPanelDepth<T>, found.values.data());
          PackPanel(b, panel, kPanelDepth<T>, depth, found.values.data());
          ExpectSameBits(found, wanted);
        });
      }
    }
  }
}

TEST(MatmulPackTest, PanelsHoldTheMatrixAndZeros) {
  CheckPanels<float>();
  CheckPanels<BFloat16>();
}

template <class T>
void CheckRows() {
  const int64_t stride = 150;
  for (const int64_t k : {1, 15, 16, 33, 70}) {
    const Array<T> a = Operand<T>({k, stride});
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{0, 1}, {0, 16}, {3, 33}, {20, 130}, {149, 1}}) {
      SCOPED_TRACE(testing::Message()
                   << k << " deep, rows from " << first << ", " << count << " of them");
      const int64_t depth = RoundUp(k, kPanelDepth<T>) + kPanelDepth<T>;
      Array<T> wanted = Unwritten<T>(count * depth);
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t d = 0; d < depth; ++d)
          wanted[i * depth + d] = d < k ? a[d * stride + first + i] : T{};
      }
      ForEachInstructionSet([&, first = first, count = count](InstructionSet) {
        Array<T> found = Unwritten<T>(count * depth);
        PackRows(a.values.data(), stride, k, first, count, depth, found.values.data());
        ExpectSameBits(found, wanted);
      });
    }
  }
}

TEST(MatmulPackTest, RowsAreColumnsAndZeros) {
  CheckRows<float>();
  CheckRows<BFloat16>();
}

}  // namespace
}  // namespace tandem::kernels

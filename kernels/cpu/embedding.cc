#include "kernels/embedding.h"

#include <cstring>

#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/scratch.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cuda/kernels.h"
#include "kernels/memory/kernel_span.h"
#include "kernels/memory/storage.h"

namespace tandem::kernels {

namespace {

// Sorts positions of `index` by value, ties in ascending position: a stable counting sort. Value i
// has the places start[i] .. start[i + 1] - 1 of `order`.
void SortByIndex(const int64_t* index, int64_t count, int64_t num_values, int64_t* start,
                 int64_t* order) {
  std::fill(start, start + num_values + 2, 0);
  for (int64_t r = 0; r < count; ++r) {
    TANDEM_CHECK(index[r] >= 0 && index[r] < num_values)
        << "index " << index[r] << " of row " << r << ", table " << num_values;
    ++start[index[r] + 2];
  }
  // Shifted by one: while rows are placed, start[i + 1] is the next free place of value i. At the
  // end it is the start of value i + 1.
  for (int64_t i = 1; i <= num_values; ++i) start[i + 1] += start[i];
  for (int64_t r = 0; r < count; ++r) order[start[index[r] + 1]++] = r;
}

// Sums the rows order[0 .. count - 1] into `to`, in this order.
template <class T>
inline void SumSegment(const T* rows, const int64_t* order, int64_t count, int64_t columns,
                       bool accumulate, Compute<T>* to) {
  if (!accumulate) {
    for (int64_t c = 0; c < columns; ++c) to[c] = 0;
  }
  for (int64_t i = 0; i < count; ++i) {
    const T* row = rows + order[i] * columns;
#pragma GCC ivdep
    for (int64_t c = 0; c < columns; ++c) to[c] += Load(row[c]);
  }
}

}  // namespace

void GatherRows(const ArrayView& output, const ArrayView& table, const ArrayView& index,
                Stream& stream) {
  TANDEM_CHECK(output.is_dense() && table.is_dense() && index.is_dense());
  TANDEM_CHECK(output.dtype == table.dtype);
  const int64_t count = index.num_elements(), num_rows = table.shape.num_rows(),
                columns = table.shape[-1];
  TANDEM_CHECK_EQ(output.num_elements(), count * columns);
  const KernelSpan span(stream, SpanKind::EMBEDDING, "gather_rows", 0,
                        static_cast<double>(2 * output.num_bytes() + index.num_bytes()));
  if (stream.on_cuda()) return cuda::GatherRows(output, table, index, stream);
  const int64_t* row = index.as<int64_t>();
  for (int64_t r = 0; r < count; ++r) {
    TANDEM_CHECK(row[r] >= 0 && row[r] < num_rows)
        << "index " << row[r] << " of row " << r << ", table " << num_rows;
  }
  const size_t row_bytes = static_cast<size_t>(columns) * SizeOf(table.dtype);
  if (row_bytes == 0) return;
  ParallelRows(stream, count, columns, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(static_cast<char*>(output.data) + static_cast<size_t>(r) * row_bytes,
                  static_cast<const char*>(table.data) + static_cast<size_t>(row[r]) * row_bytes,
                  row_bytes);
    }
  });
}

void LocateRows(const ArrayView& here, const ArrayView& factor, const ArrayView& index,
                int64_t first, int64_t count, Stream& stream) {
  const int64_t rows = index.num_elements();
  for (const ArrayView* view : {&here, &factor, &index})
    TANDEM_CHECK(view->is_dense() && view->num_elements() == rows) << view->shape;
  const KernelSpan span(
      stream, SpanKind::EMBEDDING, "locate_rows", 0,
      static_cast<double>(here.num_bytes() + factor.num_bytes() + index.num_bytes()));
  if (stream.on_cuda()) return cuda::LocateRows(here, factor, index, first, count, stream);
  WithFloatType(factor.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = index.as<int64_t>()[r] - first;
      const bool is_here = row >= 0 && row < count;
      here.as<int64_t>()[r] = is_here ? row : 0;
      factor.as<T>()[r] = is_here ? T(1) : T(0);
    }
  });
}

void ScatterAddRows(const ArrayView& output, const ArrayView& rows, const ArrayView& index,
                    bool accumulate, Stream& stream) {
  TANDEM_CHECK(output.is_dense() && rows.is_dense() && index.is_dense());
  const int64_t count = index.num_elements(), num_rows = output.shape.num_rows(),
                columns = output.shape[-1];
  TANDEM_CHECK_EQ(rows.num_elements(), count * columns);
  const KernelSpan span(stream, SpanKind::EMBEDDING, "scatter_add_rows", 0,
                        static_cast<double>(rows.num_bytes() + index.num_bytes() +
                                            (accumulate ? 2 : 1) * output.num_bytes()));
  if (stream.on_cuda()) return cuda::ScatterAddRows(output, rows, index, accumulate, stream);
  int64_t* start = Scratch<int64_t>(ScratchSlot::CALLER, num_rows + 2 + count);
  int64_t* order = start + num_rows + 2;
  SortByIndex(index.as<int64_t>(), count, num_rows, start, order);
  // The mean segment's cost, so that the split depends on shapes alone.
  const int64_t row_cost = columns * (1 + count / std::max<int64_t>(1, num_rows));
  WithStorageType(rows.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from = rows.as<T>();
    Compute<T>* to = output.as<Compute<T>>();
    ParallelRows(stream, num_rows, row_cost, [&](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t i = begin; i < end; ++i) {
          SumSegment(from, order + start[i], start[i + 1] - start[i], columns, accumulate,
                     to + i * columns);
        }
      });
    });
  });
}

}  // namespace tandem::kernels

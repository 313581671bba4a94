// The building blocks of row-wise kernels: teams of threads that share a row, and held rows. A held
// row is read once and passed over several times, as far as registers and shared memory hold it.
// The shape decides which thread has which column (row_plan.h). So neither an array's address nor
// neighbouring rows change the order of a sum.
#pragma once

#include <limits>
#include <type_traits>

#include "kernels/base/array_view.h"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/plan/row_plan.h"

namespace tandem::kernels::cuda {

// A thread's packs of a row: at first, first + step, ... below columns.
struct RowPart {
  int64_t first, step, columns;
};

// A team: kLanes neighbouring lanes of a warp (a power of two), or all threads of the block if
// kLanes is 0. All threads of the block call together.
template <int kLanes>
struct Team {
  __device__ static int Size() { return kLanes == 0 ? static_cast<int>(blockDim.x) : kLanes; }
  __device__ static int Rank() { return static_cast<int>(threadIdx.x) % Size(); }
  __device__ static int InBlock() { return static_cast<int>(threadIdx.x) / Size(); }
  __device__ static int PerBlock() { return static_cast<int>(blockDim.x) / Size(); }
  template <int kPack>
  __device__ static RowPart Part(int64_t columns) {
    return {int64_t{Rank()} * kPack, int64_t{Size()} * kPack, columns};
  }

  // Returns to every thread the sum (the maximum) over its team. `room` is shared memory with one
  // value per warp.
  __device__ static float Sum(float value, float* room) {
    if constexpr (kLanes == 0) {
      return BlockSum(value, room);
    } else {
      for (int distance = kLanes / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kAllLanes, value, distance);
      return value;
    }
  }
  __device__ static float Max(float value, float* room) {
    if constexpr (kLanes == 0) {
      return BlockMax(value, room);
    } else {
      for (int distance = kLanes / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
      return value;
    }
  }
};

// Reads element by element unless `aligned`: then one of the kernel's arrays does not allow packs.
template <int kPack, class T>
__device__ inline Pack<T, kPack> ReadPack(const T* from, bool aligned) {
  if (aligned) return Pack<T, kPack>::At(from);
  Pack<T, kPack> pack;
  for (int i = 0; i < kPack; ++i) pack.values[i] = from[i];
  return pack;
}
template <int kPack, class T>
__device__ inline void WritePack(const Pack<T, kPack>& pack, T* to, bool aligned) {
  if (aligned) return pack.Put(to);
  for (int i = 0; i < kPack; ++i) to[i] = pack.values[i];
}

// Calls body(column, p) for each pack of the part. p is the pack's number, or kPacks for all packs
// after the first kPacks.
template <int kPacks, class Body>
__device__ inline void ForEachPack(const RowPart& part, const Body& body) {
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t column = part.first + p * part.step;
    if (column < part.columns) body(column, p);
  }
  for (int64_t column = part.first + kPacks * part.step; column < part.columns; column += part.step)
    body(column, kPacks);
}

// A thread's part of a row. The first PacksHeld() packs lie in registers. Further packs lie in the
// thread's part of shared memory, as far as that reaches. The rest stay in place. The row may be
// overwritten while it is held, because each thread reads only its own columns.
template <class T, int kPack>
class HeldRow {
 public:
  static constexpr int kPacks = PacksHeld(kPack);

  __device__ HeldRow(const T* row, const RowPart& part, bool aligned, T* room = nullptr,
                     int64_t room_columns = 0)
      : row_(row),
        aligned_(aligned),
        room_(room),
        room_begin_(kPacks * part.step),
        room_end_(room_begin_ + room_columns) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t column = part.first + p * part.step;
      if (column < part.columns) held_[p] = ReadPack<kPack>(row + column, aligned);
    }
    FillRoom(part);
  }

  // REQUIRES: column and p come from ForEachPack().
  __device__ Pack<T, kPack> At(int64_t column, int p) const {
    if (p < kPacks) return held_[p];
    if (column < room_end_) return Pack<T, kPack>::At(room_ + (column - room_begin_));
    return ReadPack<kPack>(row_ + column, aligned_);
  }

  // Replaces held values: Hold replaces pack p in registers, ReadRestFrom the row for packs that
  // are not in registers.
  // REQUIRES: no shared memory is used.
  __device__ void Hold(int p, const Pack<T, kPack>& pack) {
    if (p < kPacks) held_[p] = pack;
  }
  __device__ void ReadRestFrom(const T* row) { row_ = row; }

 private:
  // Reads several packs before it writes them.
  __device__ void FillRoom(const RowPart& part) {
    constexpr int kBatch = 4;
    const int64_t end = room_end_ < part.columns ? room_end_ : part.columns;
    for (int64_t begin = part.first + room_begin_; begin < end; begin += kBatch * part.step) {
      Pack<T, kPack> batch[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int64_t column = begin + i * part.step;
        if (column < end) batch[i] = ReadPack<kPack>(row_ + column, aligned_);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int64_t column = begin + i * part.step;
        if (column < end) batch[i].Put(room_ + (column - room_begin_));
      }
    }
  }

  const T* row_;
  bool aligned_;
  T* room_;
  int64_t room_begin_, room_end_;
  Pack<T, kPack> held_[kPacks];
};

__device__ inline float ExpOf(float x) {
  constexpr float kLog2E = 1.4426950408889634f;
  return exp2f(x * kLog2E);
}

// The maximum of some elements and the sum of exp(x - maximum), in one pass. Minus infinity adds 0.
struct ExpSum {
  float max = std::numeric_limits<float>::lowest();
  float sum = 0;

  template <class T, int kPack>
  __device__ void Add(const Pack<T, kPack>& pack) {
    float largest = max;
    for (int i = 0; i < kPack; ++i) largest = fmaxf(largest, Load(pack.values[i]));
    if (largest > max) {
      sum *= ExpOf(max - largest);
      max = largest;
    }
    for (int i = 0; i < kPack; ++i) sum += ExpOf(Load(pack.values[i]) - max);
  }
};

// The ExpSum of the whole row, in every thread of its team.
template <int kLanes, class T, int kPack>
__device__ inline ExpSum RowExpSum(const HeldRow<T, kPack>& row, const RowPart& part, float* room) {
  ExpSum own;
  ForEachPack<PacksHeld(kPack)>(part, [&](int64_t column, int p) { own.Add(row.At(column, p)); });
  ExpSum all;
  all.max = Team<kLanes>::Max(own.max, room);
  all.sum = Team<kLanes>::Sum(own.sum * ExpOf(own.max - all.max), room);
  return all;
}

// Columns of a row of T that shared memory holds after the registers are full. All devices have
// this much.
template <class T>
int64_t RoomColumns(const RowPlan& plan, int64_t columns) {
  constexpr int64_t kRoomBytes = 96 << 10;
  if (plan.lanes != 0) return 0;
  const int64_t beyond = columns - int64_t{plan.threads} * plan.pack * PacksHeld(plan.pack);
  return std::clamp<int64_t>(beyond, 0, kRoomBytes / static_cast<int64_t>(sizeof(T)));
}

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

// Calls body(pack, lanes) with the plan's values as Constants. S is the type of the array that the
// plan's packs were chosen for.
template <class S, class Body>
void WithPlan(const RowPlan& plan, const Body& body) {
  const auto with_pack = [&](auto pack) {
    if (plan.lanes == 8) return body(pack, Constant<8>{});
    if (plan.lanes == 32) return body(pack, Constant<32>{});
    body(pack, Constant<0>{});
  };
  if (plan.pack == kPackOf<S>) return with_pack(Constant<kPackOf<S>>{});
  with_pack(Constant<1>{});
}

// True if packs may be read from all views; empty views do not count.
template <class... Views>
bool AllTakePacks(const Views&... views) {
  return ((reinterpret_cast<uintptr_t>(views.data) % 16 == 0) && ...);
}

}  // namespace tandem::kernels::cuda

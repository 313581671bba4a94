#include <utility>

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/plan/stable_sort_plan.h"
#include "kernels/cuda/stable_sort.cuh"

// Each pass sorts by eight more bits, lowest first, and keeps the order of equal digits. One kernel
// counts the digits of each span of places. From all counts, the next kernel computes each span's
// first target place per digit, and moves the span there. Within a span each warp has its own
// consecutive places. So the order of warps and lanes is the order of places.
namespace tandem::kernels::cuda {

namespace {

constexpr int kWarps = kSortThreads / kWarp;

struct Element {
  uint32_t key, place;
};

// The input of a pass: the index itself, or the result of the pass before.
struct IndexSource {
  const int64_t* index;
  int64_t num_values;

  __device__ Element At(int64_t p) const {
    const int64_t value = index[p];
    DeviceCheck(value >= 0 && value < num_values);
    return {static_cast<uint32_t>(value), static_cast<uint32_t>(p)};
  }
  __device__ uint32_t KeyAt(int64_t p) const { return At(p).key; }
};
struct SortedSource {
  const uint32_t *keys, *places;

  __device__ Element At(int64_t p) const { return {keys[p], places[p]}; }
  __device__ uint32_t KeyAt(int64_t p) const { return keys[p]; }
};

__device__ inline uint32_t DigitOf(uint32_t key, int shift) { return key >> shift & (kDigits - 1); }

// The lanes among `active` that have this lane's digit.
// REQUIRES: all lanes call.
__device__ inline unsigned PeersOf(uint32_t digit, unsigned active) {
  unsigned peers = active;
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const bool set = (digit >> bit & 1) != 0;
    const unsigned lanes = __ballot_sync(kAllLanes, set);
    peers &= set ? lanes : ~lanes;
  }
  return peers;
}

// Calls body(place, exists) in every lane for the places of this thread's warp. They are a part of
// the span that starts at `begin`.
template <class Body>
__device__ inline void ForEachPlace(int64_t begin, int64_t span, int64_t count, const Body& body) {
  const int64_t part = span / kWarps;
  const int64_t first = begin + threadIdx.x / kWarp * part;
  const int64_t end = first + part < count ? first + part : count;
  for (int64_t p = first; p < end; p += kWarp) {
    const int64_t place = p + threadIdx.x % kWarp;
    body(place, place < end);
  }
}

// counts[w][d] = the number of digits d at the places of warp w.
template <class Source>
__device__ inline void CountOfWarps(const Source& source, int64_t begin, int64_t span,
                                    int64_t count, int shift, uint32_t (&counts)[kWarps][kDigits]) {
  for (int w = 0; w < kWarps; ++w) counts[w][threadIdx.x] = 0;
  __syncthreads();
  uint32_t* mine = counts[threadIdx.x / kWarp];
  ForEachPlace(begin, span, count, [&](int64_t place, bool exists) {
    const uint32_t digit = exists ? DigitOf(source.KeyAt(place), shift) : 0;
    const unsigned peers = PeersOf(digit, __ballot_sync(kAllLanes, exists));
    if (exists && static_cast<int>(threadIdx.x % kWarp) == __ffs(static_cast<int>(peers)) - 1) {
      mine[digit] += static_cast<uint32_t>(__popc(peers));
    }
    __syncwarp();
  });
  __syncthreads();
}

// Returns to each thread the sum of the values of the threads before it.
__device__ inline uint32_t SumBefore(uint32_t value, uint32_t (&room)[kWarps]) {
  uint32_t sum = value;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(distance));
    if (static_cast<int>(threadIdx.x % kWarp) >= distance) sum += other;
  }
  if (threadIdx.x % kWarp == kWarp - 1) room[threadIdx.x / kWarp] = sum;
  __syncthreads();
  for (unsigned w = 0; w < threadIdx.x / kWarp; ++w) sum += room[w];
  __syncthreads();
  return sum - value;
}

// span_counts is [blocks, kDigits].
template <class Source>
__global__ void CountDigitsKernel(Source source, int64_t count, int64_t span, int shift,
                                  uint32_t* span_counts) {
  __shared__ uint32_t counts[kWarps][kDigits];
  CountOfWarps(source, int64_t{blockIdx.x} * span, span, count, shift, counts);
  uint32_t sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += counts[w][threadIdx.x];
  span_counts[int64_t{blockIdx.x} * kDigits + threadIdx.x] = sum;
}

template <class Source>
__global__ void MoveKernel(Source source, int64_t count, int64_t span, int shift,
                           const uint32_t* span_counts, uint32_t* keys, uint32_t* places) {
  __shared__ uint32_t next[kWarps][kDigits];  // target of the warp's next element of a digit
  __shared__ uint32_t room[kWarps];
  const int64_t begin = int64_t{blockIdx.x} * span;
  CountOfWarps(source, begin, span, count, shift, next);
  uint32_t all = 0, before = 0;
  for (unsigned s = 0; s < gridDim.x; ++s) {
    const uint32_t of_span = span_counts[s * kDigits + threadIdx.x];
    all += of_span;
    before += s < blockIdx.x ? of_span : 0;
  }
  uint32_t at = SumBefore(all, room) + before;
  for (int w = 0; w < kWarps; ++w) {
    const uint32_t of_warp = next[w][threadIdx.x];
    next[w][threadIdx.x] = at;
    at += of_warp;
  }
  __syncthreads();
  uint32_t* mine = next[threadIdx.x / kWarp];
  ForEachPlace(begin, span, count, [&](int64_t place, bool exists) {
    const Element element = exists ? source.At(place) : Element{};
    const uint32_t digit = DigitOf(element.key, shift);
    const unsigned peers = PeersOf(digit, __ballot_sync(kAllLanes, exists));
    const unsigned lower = peers & ((1u << threadIdx.x % kWarp) - 1);
    const uint32_t to = mine[digit] + static_cast<uint32_t>(__popc(lower));
    __syncwarp();
    if (exists) {
      keys[to] = element.key;
      places[to] = element.place;
      if (lower == 0) mine[digit] += static_cast<uint32_t>(__popc(peers));
    }
    __syncwarp();
  });
}

template <class Source>
void SortByDigit(const Operation& operation, Stream& stream, const Source& source, int64_t count,
                 int shift, uint32_t* span_counts, uint32_t* keys, uint32_t* places) {
  const int64_t span = SortSpan(count);
  const Grid grid{static_cast<unsigned>(CeilDiv(count, span)), kSortThreads};
  Launch(stream, operation, grid, CountDigitsKernel<Source>, source, count, span, shift,
         span_counts);
  Launch(stream, operation, grid, MoveKernel<Source>, source, count, span, shift, span_counts, keys,
         places);
}

}  // namespace

SortedIndex StableSort(const ArrayView& index, int64_t num_values, Stream& stream) {
  constexpr int64_t kMost = (int64_t{1} << 32) - 1;
  const int64_t count = index.num_elements();
  TANDEM_CHECK(num_values <= kMost && count <= kMost)
      << num_values << " rows, " << count << " places";
  const Operation operation{"stable_sort", index};
  const int64_t num_counts = CeilDiv(count, SortSpan(count)) * kDigits;
  SortedIndex sorted;
  sorted.memory = DeviceScratch(stream, static_cast<size_t>(2 * count) * sizeof(uint32_t));
  const auto other_memory =
      DeviceScratch(stream, static_cast<size_t>(2 * count + num_counts) * sizeof(uint32_t));
  uint32_t* to = static_cast<uint32_t*>(sorted.memory->data());
  uint32_t* other = static_cast<uint32_t*>(other_memory->data());
  uint32_t* span_counts = other + 2 * count;
  const int passes = SortPasses(num_values);
  if (passes % 2 == 0) std::swap(to, other);  // the last pass must write to sorted.memory
  SortByDigit(operation, stream, IndexSource{index.as<int64_t>(), num_values}, count, 0,
              span_counts, to, to + count);
  for (int pass = 1; pass < passes; ++pass) {
    std::swap(to, other);
    SortByDigit(operation, stream, SortedSource{other, other + count}, count, pass * kDigitBits,
                span_counts, to, to + count);
  }
  sorted.keys = to;
  sorted.places = to + count;
  return sorted;
}

}  // namespace tandem::kernels::cuda

#include "kernels/rotary.h"

#include "kernels/cuda/kernels.h"
#include "tests/kernels/cuda/placed_array.h"

namespace tandem::kernels {
namespace {

class CudaRotaryTest : public DeviceTest {};

template <class T>
void ExpectTurnsMatch(Stream& cpu, Stream& device) {
  struct {
    int64_t rows, heads, depth, turned;
  } const cases[] = {{0, 2, 4, 2}, {1, 1, 2, 1}, {9, 3, 6, 2}, {130, 6, 64, 4}, {7, 5, 128, 0}};
  constexpr int64_t kPositions = 11;
  for (const auto& c : cases) {
    for (const bool back : {false, true}) {
      const Shape shape{c.rows, c.heads, c.depth};
      Array<double> input = RandomFor<T>(shape, 1), wanted(shape);
      Array<double> table = RandomFor<float>({kPositions, c.depth}, 2);
      Array<int64_t> positions({c.rows});
      for (int64_t r = 0; r < c.rows; ++r) positions[r] = (3 * r + 1) % kPositions;
      Rotate({input, wanted, positions, table, c.turned, back}, cpu);
      const OnDevice<T> from(RoundedTo<T>(input), device), to(Poisoned<T>(shape), device);
      const OnDevice<float> angles(RoundedTo<float>(table), device);
      const OnDevice<int64_t> places(positions, device);
      Rotate({from, to, places, angles, c.turned, back}, device);
      if (c.rows > 0) {
        EXPECT_LT(RelativeError(to.Get(), wanted), kDeviceTolerance<T>);
      }
      Rotate({from, from, places, angles, c.turned, back}, device);
      EXPECT_TRUE(SameBits(from.Get(), to.Get())) << "in place";
    }
  }
}

TEST_F(CudaRotaryTest, F32MatchesF64) { ExpectTurnsMatch<float>(cpu(), device()); }
TEST_F(CudaRotaryTest, Bf16MatchesF64) { ExpectTurnsMatch<BFloat16>(cpu(), device()); }

}  // namespace
}  // namespace tandem::kernels

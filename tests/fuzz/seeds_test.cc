// Runs every fuzz target on its seeds and on some thousand random mutations of them, equal in every
// run.
// Keeps the targets working on machines without libFuzzer. tests/fuzz/run.sh searches further.
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>

#include "tests/fuzz/memory_use.h"
#include "tests/fuzz/target.h"

namespace tandem::fuzz {
namespace {

#ifdef TANDEM_SANITIZED
constexpr int kInputs = 400;
#else
constexpr int kInputs = 2000;
#endif

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& seeds) : seeds_(seeds) {}

  std::string Next() {
    std::string bytes = Pick();
    for (size_t changes = 1 + Draw(4); changes > 0 && !bytes.empty(); --changes) Change(&bytes);
    return bytes;
  }

 private:
  size_t Draw(size_t below) { return random_() % below; }
  const std::string& Pick() { return seeds_[Draw(seeds_.size())]; }

  void Change(std::string* bytes) {
    const size_t at = Draw(bytes->size());
    switch (Draw(7)) {
      case 0:
        (*bytes)[at] = static_cast<char>(random_());
        break;
      case 1:
        (*bytes)[at] ^= static_cast<char>(1 << Draw(8));
        break;
      case 2:
        (*bytes)[at] = Draw(2) == 0 ? '\0' : '\xff';
        break;
      case 3:
        bytes->erase(at, 1 + Draw(8));
        break;
      case 4:
        bytes->insert(at, 1 + Draw(8), static_cast<char>(random_()));
        break;
      case 5:
        bytes->resize(at);
        break;
      default: {
        const std::string& other = Pick();
        const size_t from = Draw(other.size());
        bytes->replace(at, Draw(16), other, from, Draw(64));
      }
    }
  }

  const std::vector<std::string> seeds_;
  std::mt19937_64 random_{1};
};

class FuzzTargetTest : public testing::TestWithParam<Target> {};

TEST_P(FuzzTargetTest, ReturnsFromItsSeedsAndFromWhatComesOfThem) {
  const std::vector<std::string> seeds = GetParam().seeds();
  ASSERT_FALSE(seeds.empty());
  for (const std::string& seed : seeds) GetParam().run(seed);
  GetParam().run("");
  Mutator mutator(seeds);
  for (int i = 0; i < kInputs; ++i) GetParam().run(mutator.Next());
}

TEST(HostileCallsTest, CostNoMoreMemoryThanTheirBytesMay) { SendHostileCalls(); }

TEST(MemoryUseTest, SeesWhatIsInUseAtOnceAndNotWhatIsFreed) {
  const MemoryUse use;
  for (int i = 0; i < 100; ++i) std::string(1 << 20, 'x').swap(*std::make_unique<std::string>());
  EXPECT_GE(use.peak_bytes(), size_t{1} << 20);
  EXPECT_LT(use.peak_bytes(), size_t{4} << 20);
}

INSTANTIATE_TEST_SUITE_P(AllTargets, FuzzTargetTest, testing::ValuesIn(AllTargets()),
                         [](const testing::TestParamInfo<Target>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace tandem::fuzz

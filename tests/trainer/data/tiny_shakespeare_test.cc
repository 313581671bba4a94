// The text room on real input: tiny Shakespeare, whose counts and floors without learning are
// known.
#include <gtest/gtest.h>

#include "tests/trainer/data/real_data.h"
#include "trainer/data/text/text.h"
#include "trainer/data/text/text_floors.h"
#include "trainer/data/text/window_sampler.h"

namespace tandem::data {
namespace {

class TinyShakespeareTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = RealDataFile("tinyshakespeare/input.txt");
    if (path.empty()) {
      GTEST_SKIP() << "no tinyshakespeare/input.txt below " << RealDataRoot()
                   << " (set TANDEM_TEST_DATA)";
    }
    auto text = ReadText(path, 0.9, 64);
    ASSERT_TRUE(text.ok()) << text.status();
    text_ = *std::move(text);
  }

  Text text_;
};

TEST_F(TinyShakespeareTest, CountsAreTheKnownOnes) {
  EXPECT_EQ(text_.vocabulary.size(), 65);
  EXPECT_EQ(text_.train.size(), 1003854u);
  EXPECT_EQ(text_.valid.size(), 111540u);
  EXPECT_EQ(text_.num_unseen, 0);
  EXPECT_EQ(text_.vocabulary.Symbols(),
            "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
}

TEST_F(TinyShakespeareTest, ValidationHas3485WindowsOf32Symbols) {
  EXPECT_EQ(WindowSampler(&text_, {.batch_size = 16, .max_length = 32}).num_eval_windows(), 3485);
  EXPECT_EQ(WindowSampler(&text_, {.batch_size = 12, .max_length = 64}).num_eval_windows(), 1742);
}

TEST_F(TinyShakespeareTest, FloorsAreTheKnownOnes) {
  EXPECT_NEAR(UnigramLoss(text_), 3.3473, 5e-5);
  EXPECT_NEAR(BigramLoss(text_), 2.4819, 5e-5);
}

}  // namespace
}  // namespace tandem::data

// User mistakes: each ends with the documented exit code and one screen that names the cause and
// the place.
// A mistake starts no run, leaves no process running and touches no output folder.
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

constexpr int kConfiguration = 2, kData = 3, kTemporary = 75;
const Arguments kTwoByTwo{"--ps", "2", "--trainers", "2"};

Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

class BadInputTest : public testing::Test {
 protected:
  void ExpectRefused(const support::Ended& ended, int exit_code,
                     const std::vector<std::string>& texts) {
    EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
    for (const std::string& text : texts)
      EXPECT_NE(ended.err.find(text), std::string::npos) << text << "\nin: " << ended.err;
    const std::vector<std::string> lines = ended.ErrorLines();
    EXPECT_GE(lines.size(), 1u);
    EXPECT_LT(lines.size(), 24u) << ended.err;
    for (const std::string& line : lines)
      EXPECT_LT(line.size(), 200 + 2 * job_.Path("").size()) << line;
    EXPECT_EQ(ended.out, "");
    job_.ExpectNothingLeft();
  }

  // Expects a one-line error. `launch` with these arguments must not make its output folder.
  void ExpectLaunchRefused(int exit_code, const Arguments& arguments,
                           const std::vector<std::string>& texts) {
    const support::Ended ended = job_.Launch("out", arguments);
    ExpectRefused(ended, exit_code, texts);
    EXPECT_EQ(ended.ErrorLines().size(), 1u) << ended.err;
    EXPECT_EQ(ended.err.rfind("error: ", 0), 0u) << ended.err;
    EXPECT_FALSE(std::filesystem::exists(job_.Path("out")));
  }

  // Like ExpectLaunchRefused, for bad data.
  void ExpectDataRefused(const Arguments& arguments, const std::vector<std::string>& texts) {
    ExpectLaunchRefused(kData, arguments + Arguments{"--local"}, texts);
  }

  Arguments WithLog(const std::string& content) {
    return {"--set", "data.path=" + job_.Write("bad.txt", content)};
  }

  SmallJob job_;
};

TEST_F(BadInputTest, MissingJobFile) {
  const support::Ended ended =
      job_.Run({"launch", job_.Path("none.textproto"), "--out", job_.Path("out")});
  ExpectRefused(ended, kConfiguration, {"none.textproto: No such file"});
}

TEST_F(BadInputTest, UnknownFieldNamesTheNearest) {
  ExpectLaunchRefused(kConfiguration, {"--set", "train.batchsize=3"},
                      {"--set train.batchsize", "did you mean \"batch_size\""});
  ExpectLaunchRefused(kConfiguration, Arguments{"--set", "ps.threds=3"} + kTwoByTwo,
                      {"did you mean \"threads\""});
}

TEST_F(BadInputTest, SeveralErrorsAreToldAtOnceWithTheirPlaces) {
  const std::string path = job_.Write(
      "bad.textproto",
      "data { path: \"log.txt\" }\nmodel {\n  sequence_rec {\n    bogus: 1\n    dropout: 1.5\n"
      "  }\n}\ntables { name: \"item\" }\n");
  const support::Ended ended = job_.Run({"launch", path, "--out", job_.Path("out"), "--set",
                                         "train.batch_size=-2", "--set", "seeds=1"});
  ExpectRefused(ended, kConfiguration,
                {"errors:\n", "bad.textproto:4:5: unknown field \"bogus\"",
                 "bad.textproto:5:5: model.sequence_rec.dropout is 1.5",
                 "--set train.batch_size: train.batch_size is -2", "did you mean \"seed\""});
  EXPECT_EQ(ended.ErrorLines().size(), 5u) << ended.err;
  EXPECT_FALSE(std::filesystem::exists(job_.Path("out")));
}

TEST_F(BadInputTest, ImpossibleLayout) {
  ExpectLaunchRefused(kConfiguration, Arguments{"--set", "parallel.dp=3"} + kTwoByTwo,
                      {"impossible layout", "parallel.dp is 3 with 2 trainers"});
  ExpectLaunchRefused(kConfiguration, {"--set", "model.sequence_rec.heads=3"},
                      {"heads is 3", "dim 16"});
}

TEST_F(BadInputTest, AllThatIsWrongWithStagesAppearsAtOnce) {
  const support::Ended ended =
      job_.Launch("out", {"--pp", "5", "--zero", "3", "--set", "parallel.microbatches=4096"});
  ExpectRefused(ended, kConfiguration,
                {"parallel.pp is 5; allowed: 1 .. ", "parallel.zero is 3; allowed: 0, 1",
                 "parallel.microbatches is 4096; allowed: 1 .. "});
  EXPECT_FALSE(std::filesystem::exists(job_.Path("out")));
}

TEST_F(BadInputTest, DeviceThatIsNotThere) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // on a machine with a GPU too
  for (const Arguments& layout : {Arguments{"--local"}, Arguments{"--ps", "2"}, kTwoByTwo}) {
    ExpectLaunchRefused(kConfiguration, Arguments{"--set", "device=CUDA"} + layout,
                        {"device CUDA: "});
  }
}

TEST_F(BadInputTest, WrongCommandLine) {
  for (const Arguments& arguments :
       {Arguments{"--trainers", "0"}, Arguments{"--trainer", "2"}, Arguments{"--ps", "two"}}) {
    const support::Ended ended = job_.Launch("out", arguments);
    ExpectRefused(ended, kConfiguration, {arguments[0]});
  }
  ExpectRefused(job_.Run({"train"}), kConfiguration, {"no command \"train\""});
}

TEST_F(BadInputTest, DataChangedOfARunThatDoesNotGoOn) {
  for (const Arguments& layout : {Arguments{"--local"}, kTwoByTwo}) {
    for (const Arguments& other : {Arguments{}, Arguments{"--overwrite"}}) {
      ExpectLaunchRefused(kConfiguration, Arguments{"--data-changed"} + layout + other,
                          {"--data-changed goes with --resume"});
    }
  }
}

TEST_F(BadInputTest, MissingDataFile) {
  ExpectDataRefused({"--set", "data.path=" + job_.Path("none.txt")}, {"none.txt: No such file"});
}

TEST_F(BadInputTest, MalformedLineIsNamedByItsNumber) {
  for (const Arguments& layout : {Arguments{"--local"}, kTwoByTwo}) {
    ExpectLaunchRefused(kData, WithLog("1 2 3 4\n\n2 3 x4 5\n") + layout,
                        {"bad.txt:3: ", "found `x4` at column 5"});
  }
}

TEST_F(BadInputTest, IdsOutsideTheCatalogue) {
  ExpectDataRefused(WithLog("1 2 3 4\n2 3 0 5\n"), {"bad.txt:2: item id 0"});
  ExpectDataRefused(WithLog("1 2 3 4\n2 3 -4 5\n"), {"bad.txt:2: item id -4 is negative"});
  ExpectDataRefused(WithLog("1 2 3 4\n2 3 9 5\n") + Arguments{"--set", "data.num_items=8"},
                    {"bad.txt:2: item id 9", "8"});
}

TEST_F(BadInputTest, NegativesWithoutAUser) {
  const std::string negatives = job_.Write("negatives.txt", "1 5 6\n2 5 6\n4 1 2\n");
  ExpectDataRefused(WithLog("1 1 2 3 4\n2 1 2 3 4\n3 1 2 3 4\n4 1 2 3 4 5 6\n") +
                        Arguments{"--set", "data.negatives_path=" + negatives},
                    {"negatives.txt: no line for user 3"});
}

TEST_F(BadInputTest, ALogThatNobodyCanBeTrainedOn) {
  ExpectDataRefused(
      WithLog("1 2 3 4\n2 3 4 5\n"),
      {"bad.txt: nobody to train on", "at least 4 items", "the longest of 2 users has 3"});
  ExpectDataRefused(WithLog("1 2 3 4 1099511627776\n"),
                    {"bad.txt: the item ids are sparse", "1099511627776"});
}

TEST_F(BadInputTest, PortInUse) {
  const support::ListeningPort taken;
  ExpectLaunchRefused(kTemporary, kTwoByTwo + Arguments{"--master", taken.address()},
                      {"port in use: " + taken.address()});
}

TEST_F(BadInputTest, OutputFolderThatCannotBe) {
  const std::string file = job_.Write("file", "precious");
  for (const char* out : {"file", "file/below"}) {
    for (const Arguments& layout : {Arguments{"--local"}, kTwoByTwo}) {
      const support::Ended ended = job_.Launch(out, layout);
      ExpectRefused(ended, kConfiguration, {"--out " + job_.Path(out), "Not a directory"});
      EXPECT_EQ(ended.ErrorLines().size(), 1u) << ended.err;
    }
  }
  EXPECT_EQ(std::filesystem::file_size(file), 8u);
}

TEST_F(BadInputTest, AnOlderRunIsLeftAsItWas) {
  job_.HashOf("run", {"--local", "--set", "train.max_steps=1"});
  for (const Arguments& layout : {Arguments{"--local"}, kTwoByTwo}) {
    EXPECT_EQ(job_.Launch("run", WithLog("1 0\n") + layout + Arguments{"--overwrite"}).exit_code,
              kData);
    EXPECT_EQ(job_.Summary("run", "status"), "completed");
    EXPECT_TRUE(job_.HasLoggedAStep("run"));
  }
}

}  // namespace
}  // namespace tandem::cluster

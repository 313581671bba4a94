// Data on which no model can be trained or evaluated ends the job before training. The error says
// what is needed and what was found.
#include "trainer/tasks/job_data.h"

#include <gtest/gtest.h>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/job_config.h"
#include "trainer/loop/replica/same_data.h"

namespace tandem::tasks {
namespace {

class JobDataTest : public testing::Test {
 protected:
  Job SequenceJob(const std::string& log, std::vector<std::string> sets = {}) {
    sets.push_back("data.path=" + folder_.Write("log.txt", log));
    return ParseJob("model { sequence_rec { } } tables { name: \"item\" dim: 8 }", "job", sets,
                    {.models = OurKinds().models(), .num_trainers = 1})
        .value();
  }
  Job TextJob(const std::string& text, std::vector<std::string> sets = {}) {
    sets.push_back("data.path=" + folder_.Write("text.txt", text));
    return ParseJob("model { gpt { max_length: 8 } } train { max_steps: 1 }", "job", sets,
                    {.models = OurKinds().models(), .num_trainers = 1})
        .value();
  }
  // Returns ReadData's error without the folder's path.
  std::string Complaint(const Job& job, DataUse use = DataUse::TRAIN) {
    const auto data = OurKinds().ReadData(job, use);
    if (data.ok()) return "";
    EXPECT_EQ(data.status().code(), absl::StatusCode::kDataLoss);
    std::string message(data.status().message());
    const size_t at = message.find(folder_.path());
    return at == std::string::npos ? message : message.erase(at, folder_.path().size() + 1);
  }

  const support::TempFolder folder_;
};

TEST_F(JobDataTest, ALogWithoutAUserToTrainOnIsRefused) {
  const std::string three = "1 1 2 3\n2 2 3 4\n";
  EXPECT_EQ(Complaint(SequenceJob(three)),
            "log.txt: nobody to train on: training takes users with at least 4 items, and the "
            "longest of 2 users has 3; give a log with "
            "longer histories");
  EXPECT_EQ(Complaint(SequenceJob(three), DataUse::EVALUATE), "");
  EXPECT_EQ(Complaint(SequenceJob("1 1\n1 2\n2 1\n", {"data.format=PAIRS"})),
            "log.txt: nobody to train on: training takes users with at least 4 items, and the "
            "longest of 2 users has 2; give a log with "
            "longer histories");
  EXPECT_EQ(Complaint(SequenceJob("1 1 2 3\n2 2 3 4 5\n")), "");
}

TEST_F(JobDataTest, ALogWithoutAUserToEvaluateIsRefused) {
  EXPECT_EQ(Complaint(SequenceJob("1 1 2\n2 3\n"), DataUse::EVALUATE),
            "log.txt: nobody to evaluate: an evaluation takes users with at least 3 items, and the "
            "longest of 2 users has 2; give a log "
            "with longer histories");
}

TEST_F(JobDataTest, FilesWithoutContentAreRefused) {
  EXPECT_EQ(Complaint(SequenceJob("")), "log.txt: the file is empty");
  EXPECT_EQ(Complaint(SequenceJob(" \n\r\n")), "log.txt: the file has only blank lines");
  EXPECT_EQ(Complaint(SequenceJob("# nothing\n")),
            "log.txt:1: expected `user item item ...`, found `#` at column 1");
  EXPECT_EQ(Complaint(SequenceJob("1 5 5 5 5\n", {"data.format=SEQUENCES"})), "")
      << "an item may come again";
  EXPECT_EQ(Complaint(SequenceJob("1 1 1 1 1\n")),
            "log.txt: the catalogue has one item only; ranking needs two");
}

TEST_F(JobDataTest, ATextWithoutAWindowIsRefused) {
  EXPECT_TRUE(absl::StrContains(Complaint(TextJob("")), "empty"));
  EXPECT_TRUE(absl::StrContains(
      Complaint(TextJob("short")),
      "its training part has 4 known symbols, a window and its next symbol need 9"));
  std::string text;
  for (int i = 0; i < 50; ++i) text += "ab";
  EXPECT_EQ(Complaint(TextJob(text)), "");
  EXPECT_TRUE(absl::StrContains(Complaint(TextJob(text, {"data.train_fraction=0.95"})),
                                "its validation part has 5 known symbols"));
  EXPECT_TRUE(absl::StrContains(Complaint(TextJob(std::string(90, 'a') + std::string(10, 'b'))),
                                "its validation part has 0 known symbols"));
}

TEST_F(JobDataTest, SparseIdsAreRefusedUnlessTheUserSaysHowManyThereAre) {
  const std::string sparse = "1 1 2 3 4 16777300\n2 1 2 3 4 2\n";
  EXPECT_TRUE(
      absl::StrContains(Complaint(SequenceJob(sparse)),
                        "the item ids are sparse: the largest is 16777300, of 5 different ones"));
  const auto data = OurKinds().ReadData(SequenceJob(sparse, {"data.num_items=20000000"}));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->num_items(), 20'000'000u);
  EXPECT_EQ(OurKinds()
                .ReadData(SequenceJob(sparse, {"data.num_items=18446744073709551615"}))
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument)
      << "more than the machine has memory for";
}

TEST_F(JobDataTest, MappedIdsAreAsLikeAsTheirNumbers) {
  const std::string sparse = "anna x 1099511627776 y z\nbo z y x x\n";
  const auto data = OurKinds().ReadData(SequenceJob(sparse, {"data.ids=MAP"}));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->num_items(), 4u);
  EXPECT_EQ((*data)->ItemIds(), "x\n1099511627776\ny\nz\n");
  const std::string negatives = folder_.Write("negatives.txt", "anna w\nbo w z\n");
  const auto ranked = OurKinds().ReadData(
      SequenceJob(sparse, {"data.ids=MAP", "data.negatives_path=" + negatives}));
  ASSERT_TRUE(ranked.ok()) << ranked.status();
  EXPECT_EQ((*ranked)->num_items(), 5u) << "negatives are of the catalogue too";
  const auto closed = OurKinds().ReadData(SequenceJob("bo z y x\n", {"data.ids=MAP"}),
                                          DataUse::EVALUATE, {.ids = "x\ny\nz\nunseen\n"});
  ASSERT_TRUE(closed.ok()) << closed.status();
  EXPECT_EQ((*closed)->num_items(), 4u);
}

TEST_F(JobDataTest, MorePartsThanTheLogHasUsersAreRefused) {
  const std::string log = "1 1 2 3 4\n2 2 3 4 5\n3 1 2\n";
  EXPECT_TRUE(OurKinds().ReadData(SequenceJob(log, {"train.accumulate=2"})).ok());
  EXPECT_EQ(OurKinds().ReadData(SequenceJob(log, {"train.accumulate=3"})).status(),
            absl::InvalidArgumentError("train.accumulate is 3; allowed: 1 .. 2, the samples that a "
                                       "replica has of the largest batch: the log "
                                       "has 2 users to train on"));
  EXPECT_TRUE(
      OurKinds().ReadData(SequenceJob(log, {"train.accumulate=3"}), DataUse::EVALUATE).ok());
}

TEST_F(JobDataTest, WhoIsLeftOutIsCounted) {
  const auto description = [this](const std::string& log) {
    return (*OurKinds().ReadData(SequenceJob(log)))->Description();
  };
  EXPECT_EQ(description("1 1 2 3 4\n2 2 3 4 5\n"), "2 users, 5 items, 8 interactions");
  EXPECT_EQ(
      description("1 1 2 3 4\n2 2 3 4\n"),
      "2 users, 4 items, 7 interactions (left out: 1 users of training, with fewer than 4 items)");
  EXPECT_EQ(description("1 1 2 3 4\n2 2 3 4\n3 1\n4 2 3\n"),
            "4 users, 4 items, 10 interactions (left out: 3 users of training, with fewer than 4 "
            "items, 2 of evaluation, with fewer than 3)");
  std::string text;
  for (int i = 0; i < 60; ++i) text += "ab";
  EXPECT_EQ((*OurKinds().ReadData(TextJob(text)))->Description(),
            "108 symbols to train on, 12 to validate, vocabulary of 2, of which the last 3 fill no "
            "window and are left out");
}

TEST_F(JobDataTest, FilesAreNamedWithSizeAndChecksum) {
  const std::string negatives = folder_.Write("negatives.txt", "1 5\n2 1\n");
  const auto data = OurKinds().ReadData(
      SequenceJob("1 1 2 3 4\n2 2 3 4 5\n", {"data.negatives_path=" + negatives}));
  ASSERT_TRUE(data.ok()) << data.status();
  const std::vector<SavedFile> files = (*data)->Files();
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name(), folder_ / "log.txt");
  EXPECT_EQ(files[0].bytes(), 20u);
  EXPECT_EQ(files[1].name(), negatives);
  EXPECT_EQ(files[1].bytes(), 8u);
  EXPECT_NE(files[0].crc32c(), 0u);
  EXPECT_EQ((*OurKinds().ReadData(TextJob(std::string(100, 'a'))))->Files()[0].bytes(), 100u);
}

TEST_F(JobDataTest, TrainersThatReadOtherLogsAreToldWhat) {
  std::vector<std::unique_ptr<JobData>> data;
  for (const char* last : {"4", "4", "3"}) {
    data.push_back(
        OurKinds().ReadData(SequenceJob(absl::StrCat("1 1 2 3 ", last, "\n2 1 2 3 4\n"))).value());
  }
  for (const int replicas : {2, 3}) {
    auto groups = comm::ThreadGroup::Create(replicas, "dp");
    std::vector<absl::Status> results(replicas);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < replicas; ++rank) {
      threads.emplace_back([&, rank] {
        results[rank] =
            loop::VerifySameData(*data[rank], *groups[rank], absl::Now() + absl::Seconds(30));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < replicas; ++rank) {
      if (replicas == 2) {
        EXPECT_TRUE(results[rank].ok()) << results[rank];
        continue;
      }
      EXPECT_EQ(results[rank].code(), absl::StatusCode::kDataLoss);
      const std::string told = absl::StrCat("trainers have read different data: trainer ", rank,
                                            " has ", folder_ / "log.txt", " of 20 bytes");
      EXPECT_TRUE(absl::StrContains(results[rank].message(), told)) << results[rank];
    }
  }
}

}  // namespace
}  // namespace tandem::tasks

#include "trainer/report/run_json.h"

#include <filesystem>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace tandem::report {
namespace {

TEST(RunJsonTest, RecordsAndTheSummaryKeepTheirOrderAndTheirNumbers) {
  StepRecord step{.step = 7, .epoch = 2, .time = 1795857541.12345, .elapsed_seconds = 0.5};
  step.loss = 1.0 / 3;
  step.learning_rate = 0.001;
  EXPECT_EQ(StepJson(step),
            R"({"step":7,"epoch":2,"time":1795857541.123,"elapsed_seconds":0.5,"loss":0.333333333,)"
            R"("lr":0.001,"grad_norm":0,"samples_per_second":0,"tokens_per_second":0,)"
            R"("compute_ms":0,"collective_ms":0,"pull_ms":0,"push_ms":0,"staleness":0})");
  step.mfu = 0.25;
  step.skipped = true;
  EXPECT_NE(StepJson(step).find(R"("staleness":0,"mfu":0.25,"skipped":true})"), std::string::npos);
  EvaluationRecord evaluation;
  evaluation.step = 4;
  evaluation.epoch = 1;
  evaluation.best = true;
  evaluation.metrics["valid/mrr"] = 0.5;
  EXPECT_EQ(EvaluationJson(evaluation),
            R"({"step":4,"epoch":1,"train/loss":0,"best":true,"metrics":{"valid/mrr":0.5}})");
  RunSummary summary;
  summary.job = "a job";
  summary.status = kCompleted;
  summary.seed = ~uint64_t{0};
  EXPECT_EQ(
      SummaryJson(summary),
      R"({"job":"a job","status":"completed","seed":18446744073709551615,"steps":0,)"
      R"("epochs":0,"best_epoch":0,"best_step":0,"seconds":0,"layout":{"ps":0,"dp":1,"tp":1,)"
      R"("pp":1,"cp":1,"ep":1,"zero":0},"model_state_bytes":0,"model_state_bytes_by_rank":[],"collective_bytes":{},)"
      R"("pulled_rows":0,"pulled_rows_by_rank":[],"served_rows":0,"bubble":null,"metrics":{},)"
      R"("samples_per_second":0,"tokens_per_second":0,"params_hash":null,"sparse_rows":0,"dense_parameters":0,)"
      R"("references":{},"version":"","environment":{},"settings":{}})");
  summary.references = {{"popularity", {{"hr@10", 0.125}}}, {"best reachable", {}}};
  summary.settings = {{"train.batch_size", "64"}, {"seed", "7"}};
  summary.program = {"tandem 1", {{"device", "CPU"}}};
  EXPECT_NE(SummaryJson(summary).find(
                R"("references":{"popularity":{"hr@10":0.125},"best reachable":{}},)"
                R"("version":"tandem 1","environment":{"device":"CPU"},)"
                R"("settings":{"train.batch_size":"64","seed":"7"}})"),
            std::string::npos)
      << SummaryJson(summary);
}

TEST(RunJsonTest, TheStatusIsThatOfTheSummaryAndOfNoOtherText) {
  const support::TempFolder folder;
  EXPECT_EQ(StatusOfRun(folder.path()), std::nullopt);
  folder.Write("summary.json",
               "{\"job\":\"\\\"status\\\":\\\"completed\\\"\",\"status\":\"failed\"}\n");
  EXPECT_EQ(StatusOfRun(folder.path()), "failed") << "the name of the job is not its status";
  folder.Write("summary.json", "{\n  \"status\": \"completed\",\n  \"steps\": 3\n}\n");
  EXPECT_EQ(StatusOfRun(folder.path()), kCompleted) << "a reader may have laid out the file anew";
  const std::string deep(100000, '[');
  for (const std::string text :
       {"", "{", "[]", "3", "{\"status\":3}", "{}", "{\"status\":\"completed\"} x", deep.c_str()}) {
    folder.Write("summary.json", text);
    EXPECT_EQ(StatusOfRun(folder.path()), std::nullopt) << text.substr(0, 40);
  }
}

TEST(RunJsonTest, AFileThatCannotBeReadHasNoStatus) {
  const support::TempFolder folder;
  std::filesystem::create_directory(folder.path() + "/summary.json");
  EXPECT_EQ(StatusOfRun(folder.path()), std::nullopt);
}

TEST(RunJsonTest, ALineThatIsNoRecordHasNoPlace) {
  const auto place = PlaceOfRecord(R"({"epoch":2,"step":7,"loss":null})");
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->step, 7);
  EXPECT_EQ(place->epoch, 2);
  EXPECT_FALSE(PlaceOfRecord(R"({"step":7})")->epoch.has_value());
  for (const char* line :
       {"", "{\"step\":7", "{\"step\":\"7\"}", "{\"step\":7.5}", "[7]", "{}", "step 7"})
    EXPECT_FALSE(PlaceOfRecord(line).has_value()) << line;
}

}  // namespace
}  // namespace tandem::report

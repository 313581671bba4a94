// Options of a model that a program adds: in files, in --set, in dumped jobs, and read by type.
#include "trainer/job/custom_options.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/job.pb.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/job/job_config.h"

namespace tandem {
namespace {

// A model with an option of each type. It only has rules.
class Toy : public tasks::Task {
 public:
  using Data = tasks::SequenceData;
  static absl::StatusOr<tasks::SequenceFiles> ReadData(const Job& job, tasks::DataUse use,
                                                       const tasks::SavedItems& saved) {
    return Data::Read(job, use, saved);
  }
  static void Options(job::CustomOptions& options) {
    if (options.Int("dim", 32, 1, 4096) == 13) options.Fail("dim", "dim is 13; allowed: luck");
    options.Double("rate", 0.1, 0, 1);
    options.Bool("shared", false);
    options.String("loss", "softmax", {"softmax", "bpr"});
    options.String("note", "");
  }

  Toy(const Job&, const Data*, const tasks::TaskEnvironment&) {}
  int64_t steps_per_epoch() const override { return 1; }
  std::unique_ptr<tasks::StepInput> Prepare(int64_t) const override { return nullptr; }
  Variable LossSum(Context&, const tasks::StepInput&, int, absl::Span<const Variable>,
                   const Variable&) const override {
    return Variable();
  }
  absl::StatusOr<tasks::Evaluation> Evaluate(tasks::EvaluationSplit,
                                             const tasks::EvaluationArgs&) override {
    return tasks::Evaluation();
  }
};

absl::StatusOr<Job> Parse(const std::string& model, const std::vector<std::string>& sets = {}) {
  const tasks::Kinds kinds({tasks::Add<Toy>("toy")});
  return ParseJob("data { path: \"log\" }\nmodel { custom { " + model + " } }", "job", sets,
                  {.models = kinds.models(), .num_trainers = 1});
}

std::string Refused(const std::string& model, const std::vector<std::string>& sets = {}) {
  return std::string(Parse(model, sets).status().message());
}

std::string Complaint(const std::string& options, const std::vector<std::string>& sets = {}) {
  return Refused("name: \"toy\" options { " + options + " }", sets);
}

std::string Value(const Job& job, const std::string& option) {
  return job.model().custom().options().values().at(option);
}

TEST(CustomOptionsTest, AbsentOptionsTakeTheDefaultsThatTheModelNames) {
  const auto job = Parse("name: \"toy\"");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(Value(*job, "dim"), "32");
  EXPECT_EQ(Value(*job, "rate"), "0.1");
  EXPECT_EQ(Value(*job, "shared"), "false");
  EXPECT_EQ(Value(*job, "loss"), "softmax");
  EXPECT_EQ(Value(*job, "note"), "");
  EXPECT_EQ(job->placement(), Job::REPLICATED) << "it has no table";
  EXPECT_EQ(job->train().select_by(), VALID_LOSS);
}

TEST(CustomOptionsTest, GivenOptionsAreReadByType) {
  const auto job = Parse(
      "name: \"toy\" options { dim: 0x10, rate: 1e-3; shared: true loss: bpr note: \"a\" 'b' }");
  ASSERT_TRUE(job.ok()) << job.status();
  job::CustomOptions options(*job);
  EXPECT_EQ(options.Int("dim", 32, 1, 4096), 16);
  EXPECT_EQ(options.Double("rate", 0.1, 0, 1), 1e-3);
  EXPECT_TRUE(options.Bool("shared", false));
  EXPECT_EQ(options.String("loss", "softmax"), "bpr");
  EXPECT_EQ(options.String("note", ""), "ab");
}

TEST(CustomOptionsTest, OneValueHasOneSpellingInAResolvedJob) {
  const auto spelled = Parse("name: \"toy\" options { dim: 0x20 rate: 0.10 }");
  ASSERT_TRUE(spelled.ok()) << spelled.status();
  EXPECT_EQ(JobFingerprint(*spelled), JobFingerprint(*Parse("name: \"toy\"")));
  EXPECT_NE(JobFingerprint(*Parse("name: \"toy\" options { dim: 31 }")), JobFingerprint(*spelled));
}

TEST(CustomOptionsTest, AnUnknownOptionNamesTheNearestAndItsPlace) {
  EXPECT_EQ(Complaint("dims: 3"),
            "job:2:40: unknown option \"dims\" of toy; did you mean \"dim\"? It has the options "
            "dim, loss, note, rate, shared");
  EXPECT_EQ(Complaint("zzzzzz: 3"),
            "job:2:40: unknown option \"zzzzzz\" of toy; it has the options dim, loss, note, rate, "
            "shared");
}

TEST(CustomOptionsTest, AWrongValueNamesTheAllowedOnes) {
  const std::string place = "job:2:40: model.custom.options.";
  EXPECT_EQ(Complaint("dim: 0"), place + "dim is 0; allowed: a whole number, 1 .. 4096");
  EXPECT_EQ(Complaint("dim: 1.5"), place + "dim is 1.5; allowed: a whole number, 1 .. 4096");
  EXPECT_EQ(Complaint("dim: \"\""), place + "dim is \"\"; allowed: a whole number, 1 .. 4096");
  EXPECT_EQ(Complaint("rate: -1e-9"), place + "rate is -1e-9; allowed: a number, 0 .. 1");
  EXPECT_EQ(Complaint("rate: nan"), place + "rate is nan; allowed: a number, 0 .. 1");
  EXPECT_EQ(Complaint("shared: 1"), place + "shared is 1; allowed: true, false");
  EXPECT_EQ(Complaint("loss: hinge"), place + "loss is hinge; allowed: softmax, bpr");
  EXPECT_EQ(Complaint("dim: 0 rate: 2"),
            place +
                "dim is 0; allowed: a whole number, 1 .. 4096\n"
                "job:2:47: model.custom.options.rate is 2; allowed: a number, 0 .. 1");
}

TEST(CustomOptionsTest, AModelMayRefuseWhatItReads) {
  EXPECT_EQ(Complaint("dim: 13"), "job:2:40: dim is 13; allowed: luck");
  EXPECT_EQ(Complaint("", {"model.options.dim=13"}),
            "--set model.options.dim: dim is 13; allowed: luck");
}

TEST(CustomOptionsTest, ATextThatLooksLikeANumberKeepsItsBlanks) {
  const auto job = Parse("name: \"toy\" options { note: \"5 \" }");
  ASSERT_TRUE(job.ok()) << job.status();
  const tasks::Kinds kinds({tasks::Add<Toy>("toy")});
  const auto again =
      ParseJob(DumpJob(*job), "job", {}, {.models = kinds.models(), .num_trainers = 1});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Value(*again, "note"), "5 ");
}

TEST(CustomOptionsTest, ANumberIsTheWholeText) {
  for (const char* text : {"\" 0.5\"", "\"0.5 \"", "\"+0.5\"", "\" 010\"", "\"0x1\""})
    EXPECT_NE(Complaint(absl::StrCat("rate: ", text)), "") << text;
  EXPECT_EQ(Complaint("rate: \".5\""), "");
}

TEST(CustomOptionsTest, AnOptionIsGivenOnceAndHasOnePlainValue) {
  EXPECT_EQ(Complaint("dim: 3 dim: 4"),
            "job:2:47: model.custom.options.dim is given twice, first at job:2:40; allowed: once");
  EXPECT_EQ(
      Complaint("dim: [3, 4] rate: 2"),
      "job:2:45: model.custom.options.dim takes a word, a number or a quoted string; found [\n"
      "job:2:52: model.custom.options.rate is 2; allowed: a number, 0 .. 1");
  EXPECT_EQ(Complaint("dim { a: 1 }"), "job:2:44: expected \":\" after dim, found {");
}

TEST(CustomOptionsTest, SetReachesOptionsWithAndWithoutTheMemberOfTheOneof) {
  for (const std::string path : {"model.custom.options.dim", "model.options.dim"}) {
    const auto job = Parse("name: \"toy\" options { dim: 16 }", {path + "=8"});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(Value(*job, "dim"), "8");
    EXPECT_EQ(
        Complaint("", {path + "=0"}),
        "--set " + path + ": model.custom.options.dim is 0; allowed: a whole number, 1 .. 4096");
  }
  EXPECT_EQ(Value(*Parse("name: \"toy\"", {"model.options.note=a b=c"}), "note"), "a b=c");
  EXPECT_EQ(
      Complaint("", {"model.options.dims=3"}),
      "--set model.options.dims: unknown option \"dims\" of toy; did you mean \"dim\"? It has "
      "the options dim, loss, note, rate, shared");
  EXPECT_EQ(
      Complaint("", {"model.options=3"}),
      "--set model.options: model.custom.options is a group of fields; set one of them, as in "
      "model.custom.options.NAME");
  EXPECT_EQ(
      Complaint("", {"model.options.dim.x=3"}),
      "--set model.options.dim.x: model.custom.options.dim takes a word, a number or a quoted "
      "string; it has no parts");
}

TEST(CustomOptionsTest, ADumpedJobReadsBackAsItself) {
  for (const char* note :
       {"", "word", "two words", "-1", "1e-3", "010", "\\\"q\\\" \\\\", "é\\n"}) {
    SCOPED_TRACE(note);
    const auto job = Parse(std::string("name: \"toy\" options { dim: 8 note: \"") + note + "\" }");
    ASSERT_TRUE(job.ok()) << job.status();
    const tasks::Kinds kinds({tasks::Add<Toy>("toy")});
    const auto again =
        ParseJob(DumpJob(*job), "job", {}, {.models = kinds.models(), .num_trainers = 1});
    ASSERT_TRUE(again.ok()) << again.status() << DumpJob(*job);
    EXPECT_EQ(DumpJob(*again), DumpJob(*job));
    EXPECT_EQ(Value(*again, "note"), Value(*job, "note"));
  }
  const std::string text = DumpJob(*Parse("name: \"toy\" options { note: \"a b\" }"));
  const size_t begin = text.find("model {");
  EXPECT_EQ(text.substr(begin, text.find("train {") - begin), R"(model {
  custom {
    name: "toy"
    options {
      dim: 32
      loss: softmax
      note: "a b"
      rate: 0.1
      shared: false
    }
  }
}
)");
}

TEST(CustomOptionsTest, AModelThatTheProgramLacksIsRefusedWithTheNearest) {
  EXPECT_EQ(Refused("name: \"toys\""),
            "job:2:18: model.custom.name is \"toys\"; allowed: toy; did you mean \"toy\"?");
  EXPECT_EQ(Refused(""), "job:2:9: model.custom.name is \"\"; allowed: toy");
  EXPECT_EQ(Refused("name: \"gpt\""), "job:2:18: model.custom.name is \"gpt\"; allowed: toy");
  const auto job = ParseJob("data { path: \"log\" } model { custom { name: \"toy\" } }", "job", {},
                            {.models = OurKinds().models()});
  EXPECT_EQ(
      job.status().message(),
      "job:1:39: model.custom.name is \"toy\"; allowed: none, for this program adds no model: run "
      "the program that adds it");
}

TEST(KindsDeathTest, TwoKindsOfOneNameAreAMistakeOfTheProgram) {
  EXPECT_DEATH(tasks::Kinds({tasks::Add<Toy>("toy"), tasks::Add<Toy>("toy")}), "named \"toy\"");
  EXPECT_DEATH(tasks::Kinds({tasks::Add<Toy>("gpt")}), "named \"gpt\"");
}

}  // namespace
}  // namespace tandem

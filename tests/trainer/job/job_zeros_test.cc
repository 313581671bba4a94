// A written 0 stays a written 0: each number of a job either becomes 0 or the job is refused.
#include <functional>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/job.pb.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/job/job_config.h"

namespace tandem {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const char* const kJobs[] = {
    "data { path: \"log\" } model { sequence_rec { } } tables { name: \"item\" }",
    "data { path: \"text\" } model { gpt { } } tables { name: \"token\" }",
};

bool IsNumber(const FieldDescriptor* field) {
  if (field->is_repeated()) return false;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
    case FieldDescriptor::CPPTYPE_ENUM:
    case FieldDescriptor::CPPTYPE_STRING:
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return false;
    default:
      return true;
  }
}

double ValueOf(const Message& message, const FieldDescriptor* field) {
  const auto* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(reflection->GetInt64(message, field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(reflection->GetUInt64(message, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->GetFloat(message, field);
    default:
      return reflection->GetDouble(message, field);
  }
}

// Calls `visit` with every number of the messages in the job, and its path.
void ForEachNumber(
    const Message& message, const std::string& prefix,
    const std::function<void(const Message&, const FieldDescriptor*, const std::string&)>& visit) {
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const std::string path = prefix + field->name();
    if (IsNumber(field)) {
      visit(message, field, path);
    } else if (field->message_type() != nullptr && field->is_repeated()) {
      for (int j = 0; j < reflection->FieldSize(message, field); ++j) {
        ForEachNumber(reflection->GetRepeatedMessage(message, field, j),
                      absl::StrCat(path, "[", j, "]."), visit);
      }
    } else if (field->message_type() != nullptr && (field->real_containing_oneof() == nullptr ||
                                                    reflection->HasField(message, field))) {
      ForEachNumber(reflection->GetMessage(message, field), path + ".", visit);
    }
  }
}

absl::StatusOr<Job> Load(const std::string& text, const std::vector<std::string>& sets) {
  return ParseJob(text, "job", sets, {.models = OurKinds().models(), .num_trainers = 1});
}

TEST(JobZerosTest, EveryWrittenZeroIsKeptOrRefusedByName) {
  int kept = 0, refused = 0;
  for (const std::string text : kJobs) {
    ForEachNumber(
        *Load(text, {}), "", [&](const Message&, const FieldDescriptor*, const std::string& path) {
          const absl::StatusOr<Job> job = Load(text, {path + "=0"});
          if (!job.ok()) {
            ++refused;
            EXPECT_TRUE(
                absl::StrContains(job.status().message(), absl::StrCat(path, " is 0; allowed: ")))
                << job.status();
            return;
          }
          ++kept;
          ForEachNumber(
              *job, "",
              [&](const Message& message, const FieldDescriptor* field, const std::string& found) {
                if (found != path) return;
                EXPECT_EQ(ValueOf(message, field), 0) << path;
              });
        });
  }
  EXPECT_GT(kept, 30);
  EXPECT_GT(refused, 30);
}

TEST(JobZerosTest, ANumberWhoseDefaultIsNotZeroKnowsWhetherItWasWritten) {
  for (const std::string text : kJobs) {
    for (const char* set : {"seed=0", "ps.consistency=PERMIT", "ps.consistency=GEO",
                            "ps.consistency=ROW_BOUND", "tables[0].optimizer=FTRL",
                            "tables[0].optimizer=ADADELTA", "tables[0].optimizer=MOMENTUM"}) {
      ForEachNumber(
          *Load(text, {set}), "",
          [&](const Message& message, const FieldDescriptor* field, const std::string& path) {
            EXPECT_TRUE(ValueOf(message, field) == 0 || field->has_presence()) << path;
          });
    }
  }
}

TEST(JobZerosTest, ZerosOfAFileAreThoseOfSet) {
  const std::string text = kJobs[0];
  const absl::StatusOr<Job> zeros =
      Load(text + " optimizer { beta1: 0 beta2: 0.0 } trace { steps: 0 }", {});
  ASSERT_TRUE(zeros.ok()) << zeros.status();
  EXPECT_EQ(zeros->optimizer().beta1(), 0);
  EXPECT_EQ(zeros->optimizer().beta2(), 0);
  EXPECT_EQ(zeros->trace().steps(), 0);
  EXPECT_NE(JobFingerprint(*zeros), JobFingerprint(*Load(text, {})));
  const absl::StatusOr<Job> again = Load(DumpJob(*zeros), {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(DumpJob(*again), DumpJob(*zeros));
  EXPECT_EQ(
      Load(text + "\noptimizer {\n  learning_rate: 0\n}", {}).status(),
      absl::InvalidArgumentError("job:3:3: optimizer.learning_rate is 0; allowed: greater than 0"));
}

TEST(JobZerosTest, AZeroThatMeansTheDefaultIsTheSameJob) {
  const uint64_t fingerprint = JobFingerprint(*Load(kJobs[0], {}));
  for (const char* set :
       {"ps.staleness=0", "ps.geo_steps=0", "ps.cache_rows=0", "train.patience=0", "seed=0"}) {
    EXPECT_EQ(JobFingerprint(*Load(kJobs[0], {set})), fingerprint) << set;
  }
}

}  // namespace
}  // namespace tandem

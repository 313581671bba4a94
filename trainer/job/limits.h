// Limits of a job's numbers. Only a field that the job gives is checked, also if it is 0, because
// an absent field takes its default. An error shows where the field was given, the found value and
// the allowed values.
// Thread rule: one thread.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "trainer/job/text_reader.h"

namespace tandem {

class Limits {
 public:
  // Errors go to `reader`, which knows the places of fields.
  explicit Limits(TextReader* reader) : reader_(reader) {}

  // `prefix` is the path of `message` with a trailing dot; `field` is the name of a number in
  // `message`.
  void Between(const google::protobuf::Message& message, const std::string& prefix,
               const char* field, double low, double high);
  void AtLeast(const google::protobuf::Message& message, const std::string& prefix,
               const char* field, double low);
  // The number must also be positive as an f32, because most numbers become f32.
  void Positive(const google::protobuf::Message& message, const std::string& prefix,
                const char* field);
  // BelowOne allows [0, 1); InsideOne allows (0, 1).
  void BelowOne(const google::protobuf::Message& message, const std::string& prefix,
                const char* field);
  void InsideOne(const google::protobuf::Message& message, const std::string& prefix,
                 const char* field);

  template <typename T>
  void Refuse(const std::string& path, const T& found, const std::string& allowed) {
    Fail(path, absl::StrCat(path, " is ", found, "; allowed: ", allowed));
  }
  void Fail(const std::string& path, const std::string& what) {
    reader_->AddError(absl::StrCat(reader_->Place(path), ": ", what));
  }

 private:
  TextReader* reader_;
};

}  // namespace tandem

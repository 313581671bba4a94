// One written value into one field of a message, and the sentence that says why not. Shared by job files and --set, so
// that both know the same words.
#pragma once

#include <string>
#include <string_view>

namespace google::protobuf {
class Descriptor;
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

namespace tandem {

struct WrittenValue {
  std::string text;       // without quotes, escapes resolved
  bool quoted = false;    // written as a string literal
  bool argument = false;  // from the command line, where strings have no quotes
};

// Sets (or, for a list, adds) `field`. Returns "" or what the field takes and what was found, naming the field `path`.
// REQUIRES: the field is not a message.
std::string AssignScalar(const std::string& path, const google::protobuf::FieldDescriptor* field, const WrittenValue& value,
                         google::protobuf::Message* message);

// What kind of value the field takes: "a whole number", "true or false", ...
std::string TakesWhat(const google::protobuf::FieldDescriptor* field);

// `unknown field "batch_sise" in Train; did you mean "batch_size"?`, or where a field of that name is, or what there is.
std::string UnknownField(const google::protobuf::Descriptor* type, std::string_view name);

}  // namespace tandem

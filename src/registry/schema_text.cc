#include "registry/schema_text.h"

#include <google/protobuf/compiler/parser.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "registry/http.h"

namespace walpost::registry {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::DescriptorProto;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;

class FirstError final : public DescriptorPool::ErrorCollector {
 public:
  void AddError(const std::string& file, const std::string&, const google::protobuf::Message*,
                ErrorLocation, const std::string& message) override {
    if (text_.empty()) {
      text_ = file + ": " + message;
    }
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void AddRecords(const Descriptor& message, std::vector<std::string>* records) {
  records->push_back(message.full_name());
  for (int i = 0; i < message.nested_type_count(); ++i) {
    if (!message.nested_type(i)->options().map_entry()) {
      AddRecords(*message.nested_type(i), records);
    }
  }
}

// As protobuf derives it from the field's name.
std::string JsonName(const std::string& name) {
  std::string json;
  bool upper = false;
  for (const char c : name) {
    if (c != '_') {
      json += upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    }
    upper = c == '_';
  }
  return json;
}

// Descriptor sets name what goes without saying; in generated code, and so in what serializers
// register, it does not stand.
void DropJsonNames(DescriptorProto* message) {
  for (google::protobuf::FieldDescriptorProto& field : *message->mutable_field()) {
    if (field.json_name() == JsonName(field.name())) {
      field.clear_json_name();
    }
  }
  for (DescriptorProto& nested : *message->mutable_nested_type()) {
    DropJsonNames(&nested);
  }
}

}  // namespace

bool IsKnownImport(std::string_view file) {
  for (const std::string_view prefix : {"google/protobuf/", "google/type/", "confluent/"}) {
    if (file.substr(0, prefix.size()) == prefix) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<Descriptors> Descriptors::Read(const std::string& path) {
  constexpr char kHow[] = "make it with `protoc --include_imports --descriptor_set_out=FILE ...`";
  const absl::StatusOr<std::string> bytes = ReadFile(path, kDescriptorSetBytesMax);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("descriptor_set: %s %s", path, std::string(bytes.status().message())));
  }
  google::protobuf::FileDescriptorSet set;
  if (!set.ParseFromString(*bytes) || set.file().empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("descriptor_set: %s is no FileDescriptorSet: %s", path, kHow));
  }
  Descriptors descriptors;
  descriptors.pool_ = std::make_unique<DescriptorPool>();
  for (FileDescriptorProto& proto : *set.mutable_file()) {
    for (DescriptorProto& message : *proto.mutable_message_type()) {
      DropJsonNames(&message);
    }
    for (google::protobuf::FieldDescriptorProto& extension : *proto.mutable_extension()) {
      extension.clear_json_name();
    }
    FirstError error;
    const FileDescriptor* const file = descriptors.pool_->BuildFileCollectingErrors(proto, &error);
    if (file == nullptr) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "descriptor_set: %s does not hold together: %s; %s", path, error.text(), kHow));
    }
    descriptors.files_.push_back(file);
  }
  return descriptors;
}

std::vector<std::string> Descriptors::Records() const {
  std::vector<std::string> records;
  for (const FileDescriptor* const file : files_) {
    for (int i = 0; !IsKnownImport(file->name()) && i < file->message_type_count(); ++i) {
      AddRecords(*file->message_type(i), &records);
    }
  }
  return records;
}

std::vector<std::int32_t> IndexesOf(const Descriptor& message) {
  std::vector<std::int32_t> indexes;
  for (const Descriptor* each = &message; each != nullptr; each = each->containing_type()) {
    indexes.insert(indexes.begin(), each->index());
  }
  return indexes;
}

std::string AsBase64(const FileDescriptor& file) {
  FileDescriptorProto proto;
  file.CopyTo(&proto);
  return absl::Base64Escape(proto.SerializeAsString());
}

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::UninterpretedOption;

constexpr int kTokensMax = 100'000;
constexpr int kOptionMessagesMax = 1'000;
constexpr std::size_t kOptionsMax = 5'000;

// Whether there is an error is all that counts.
class Silent final : public google::protobuf::io::ErrorCollector,
                     public DescriptorPool::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {
    failed_ = true;
  }

  void AddError(const std::string&, const std::string&, const google::protobuf::Message*,
                ErrorLocation, const std::string&) override {
    failed_ = true;
  }

  bool failed() const { return failed_; }

 private:
  bool failed_ = false;
};

// Ends at the first error: behind one, protobuf's parser takes some braces for others, and so goes
// deeper than the text is nested.
class TextUntilError final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  TextUntilError(const std::string& text, const Silent& errors) : text_(text), errors_(errors) {}

  bool Next(const void** data, int* size) override {
    if (errors_.failed() || at_ == text_.size()) {
      return false;
    }
    *data = &text_[at_++];
    *size = 1;
    return true;
  }

  void BackUp(int count) override { at_ -= static_cast<std::size_t>(count); }

  bool Skip(int count) override {
    const std::size_t left = text_.size() - at_;
    at_ += std::min(static_cast<std::size_t>(count), left);
    return static_cast<std::size_t>(count) <= left;
  }

  std::int64_t ByteCount() const override { return static_cast<std::int64_t>(at_); }

 private:
  const std::string& text_;
  const Silent& errors_;
  std::size_t at_ = 0;
};

// The parser has no limit of its own: it recurses at each brace that is open, and keeps a place for
// each token or two. What is in comments and strings is neither, so its own tokens are counted.
bool IsWithinLimits(const std::string& text) {
  Silent errors;
  TextUntilError stream(text, errors);
  google::protobuf::io::Tokenizer tokens(&stream, &errors);
  int depth = 0;
  for (int count = 0; tokens.Next(); ++count) {
    depth += tokens.current().text == "{" ? 1 : tokens.current().text == "}" ? -1 : 0;
    if (depth < 0 || depth > kSchemaDepthMax || count >= kTokensMax) {
      return false;
    }
  }
  return depth == 0 && !errors.failed();
}

// The parser prints a warning for a file that does not say so itself.
std::string WithSyntax(const std::string& text) {
  Silent errors;
  TextUntilError stream(text, errors);
  google::protobuf::io::Tokenizer tokens(&stream, &errors);
  tokens.Next();
  return tokens.current().text == "syntax" ? text : "syntax = \"proto2\"; " + text;
}

std::optional<FileDescriptorProto> Parse(const std::string& given) {
  if (!IsWithinLimits(given)) {
    return std::nullopt;
  }
  const std::string text = WithSyntax(given);
  Silent errors;
  TextUntilError stream(text, errors);
  google::protobuf::io::Tokenizer tokens(&stream, &errors);
  google::protobuf::compiler::Parser parser;
  parser.RecordErrorsTo(&errors);
  FileDescriptorProto file;
  if (!parser.Parse(&tokens, &file) || errors.failed()) {
    return std::nullopt;
  }
  return file;
}

// protobuf recurses at each message within an option's value, and at each part of its name.
bool IsSimple(const UninterpretedOption& option) {
  const std::string& value = option.aggregate_value();
  const auto messages =
      std::count_if(value.begin(), value.end(), [](char c) { return c == '{' || c == '<'; });
  return messages <= kOptionMessagesMax && option.name_size() <= kSchemaDepthMax;
}

// What makes it costly to have protobuf build a file.
struct Extent {
  std::size_t declarations = 0;
  std::size_t options = 0;  // as they were written
  bool simple = true;
};

void Measure(const Message& message, Extent* extent);

void MeasureField(const Message& each, bool is_option, Extent* extent) {
  if (each.GetDescriptor() == UninterpretedOption::descriptor()) {
    ++extent->options;
    extent->simple = extent->simple && IsSimple(static_cast<const UninterpretedOption&>(each));
    return;
  }
  extent->declarations += is_option ? 0 : 1;
  Measure(each, extent);
}

void Measure(const Message& message, Extent* extent) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* const field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    }
    const bool is_option = field->name() == "options";
    if (!field->is_repeated()) {
      MeasureField(reflection.GetMessage(message, field), is_option, extent);
    }
    for (int i = 0; field->is_repeated() && i < reflection.FieldSize(message, field); ++i) {
      MeasureField(reflection.GetRepeatedMessage(message, field, i), is_option, extent);
    }
  }
}

// Only what could be the same is built: some checks of protobuf's compare each range with all
// others.
bool IsAsLarge(const FileDescriptorProto& ours, const FileDescriptorProto& theirs) {
  Extent a;
  Measure(ours, &a);
  Extent b;
  Measure(theirs, &b);
  return a.declarations == b.declarations && b.simple && b.options <= kOptionsMax;
}

void AddImports(const FileDescriptor& file, DescriptorPool* pool) {
  for (int i = 0; i < file.dependency_count(); ++i) {
    const FileDescriptor& import = *file.dependency(i);
    if (pool->FindFileByName(import.name()) == nullptr) {
      AddImports(import, pool);
      FileDescriptorProto proto;
      import.CopyTo(&proto);
      pool->BuildFile(proto);
    }
  }
}

}  // namespace

std::optional<FileDescriptorProto> ReadSchema(const std::string& schema) {
  if (schema.size() > kSchemaBytesMax) {
    return std::nullopt;
  }
  FileDescriptorProto serialized;
  std::string bytes;
  std::optional<FileDescriptorProto> file =
      absl::Base64Unescape(schema, &bytes) && serialized.ParseFromString(bytes)
          ? std::move(serialized)
          : Parse(schema);
  if (file) {
    file->clear_source_code_info();  // larger than all else
  }
  return file;
}

std::optional<std::vector<std::int32_t>> FindIndexes(const FileDescriptorProto& file,
                                                     const std::string& record) {
  const std::string prefix = file.package().empty() ? "" : file.package() + ".";
  if (!absl::StartsWith(record, prefix)) {
    return std::nullopt;
  }
  std::vector<std::int32_t> indexes;
  const auto* messages = &file.message_type();
  for (const std::string& name :
       std::vector<std::string>(absl::StrSplit(record.substr(prefix.size()), '.'))) {
    const auto found =
        std::find_if(messages->begin(), messages->end(), [&name](const DescriptorProto& message) {
          return message.name() == name && !message.options().map_entry();
        });
    if (found == messages->end()) {
      return std::nullopt;
    }
    indexes.push_back(static_cast<std::int32_t>(found - messages->begin()));
    messages = &found->nested_type();
  }
  return indexes;
}

bool SameDeclarations(const FileDescriptor& ours, FileDescriptorProto theirs) {
  FileDescriptorProto a;
  ours.CopyTo(&a);
  if (!IsAsLarge(a, theirs)) {
    return false;
  }
  DescriptorPool pool;
  AddImports(ours, &pool);
  theirs.set_name(ours.name());
  Silent errors;
  const FileDescriptor* const built = pool.BuildFileCollectingErrors(theirs, &errors);
  if (built == nullptr) {
    return false;
  }
  FileDescriptorProto b;
  built->CopyTo(&b);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_repeated_field_comparison(google::protobuf::util::MessageDifferencer::AS_SET);
  return differencer.Compare(a, b);
}

}  // namespace walpost::registry

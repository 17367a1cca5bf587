#include "registry/descriptors.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "registry/read_file.h"

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

}  // namespace walpost::registry

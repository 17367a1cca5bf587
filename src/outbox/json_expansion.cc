#include "outbox/json_expansion.h"

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "outbox/connect_value.h"

namespace walpost::outbox {
namespace {

constexpr std::size_t kDepthMax = 1000;  // as Jackson

// Of merging the members of an array's objects. Nested arrays may have the same member moved again
// at each level, so values and depth alone leave room for hours.
constexpr std::size_t kMergeStepsMax = 4 * kJsonValuesMax;
constexpr std::size_t kNameBytesPerStep = 64;  // a long name takes longer to look up

// Members in their order, found in constant time however many there are.
template <typename T>
class Members {
 public:
  T* Find(const std::string& name) {
    if (items_.size() <= kScanned) {
      for (auto& [other, item] : items_) {
        if (other == name) {
          return &item;
        }
      }
      return nullptr;
    }
    const auto found = index_->find(name);
    return found == index_->end() ? nullptr : &items_[found->second].second;
  }

  T& Add(std::string name) {
    items_.emplace_back(std::move(name), T());
    if (items_.size() > kScanned) {
      if (index_ == nullptr) {
        index_ = std::make_unique<Index>();
      }
      for (std::size_t i = index_->size(); i < items_.size(); ++i) {
        index_->emplace(items_[i].first, i);
      }
    }
    return items_.back().second;
  }

  std::vector<std::pair<std::string, T>>& items() { return items_; }

 private:
  static constexpr std::size_t kScanned = 16;
  // Ordered: who writes the names cannot choose them so that each search takes long.
  using Index = std::map<std::string, std::size_t>;

  std::vector<std::pair<std::string, T>> items_;
  std::unique_ptr<Index> index_;  // of what has many
};

enum class Kind { kNull, kText, kBool, kInt32, kInt64, kDouble, kArray, kObject };

struct Node {
  Kind kind = Kind::kNull;
  std::string text;  // of a string; a number or boolean as it is written
  std::vector<Node> elements;
  Members<Node> members;
};

// What Kafka Connect calls a schema.
struct Shape {
  Kind kind = Kind::kNull;
  std::vector<Shape> element;  // one, of an array
  Members<Shape> members;
};

// A tree, because the parser's own rounds numbers and knows no order.
class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Node& root() { return root_; }

  bool null() override { return Take(Kind::kNull, ""); }

  bool boolean(bool value) override { return Take(Kind::kBool, value ? "true" : "false"); }

  bool number_integer(number_integer_t value) override {
    const bool narrow = value >= std::numeric_limits<std::int32_t>::min() &&
                        value <= std::numeric_limits<std::int32_t>::max();
    return Take(narrow ? Kind::kInt32 : Kind::kInt64, std::to_string(value));
  }

  bool number_unsigned(number_unsigned_t value) override {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    return value <= kMax && number_integer(static_cast<std::int64_t>(value));
  }

  bool number_float(number_float_t value, const string_t& digits) override {
    // Without a point or exponent it is a whole number that fits no type.
    return digits.find_first_of(".eE") != string_t::npos && Take(Kind::kDouble, JavaNumber(value));
  }

  bool string(string_t& value) override { return Take(Kind::kText, std::move(value)); }

  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return Open(Kind::kObject); }

  bool start_array(std::size_t) override { return Open(Kind::kArray); }

  bool end_object() override { return Close(); }

  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  Node* Place() {
    if (open_.empty()) {
      return &root_;
    }
    Node* parent = open_.back();
    if (parent->kind == Kind::kArray) {
      parent->elements.emplace_back();
      return &parent->elements.back();
    }
    // The last of a name counts, where the first one stands.
    Node* known = parent->members.Find(key_);
    if (known != nullptr) {
      *known = Node();
      return known;
    }
    return &parent->members.Add(std::move(key_));
  }

  bool Take(Kind kind, std::string text) {
    if (++values_ > kJsonValuesMax) {
      return false;
    }
    Node* node = Place();
    node->kind = kind;
    node->text = std::move(text);
    return true;
  }

  // What is open does not move: nothing is added beside it until it is closed.
  bool Open(Kind kind) {
    if (++values_ > kJsonValuesMax) {
      return false;
    }
    Node* node = Place();
    node->kind = kind;
    open_.push_back(node);
    return open_.size() <= kDepthMax;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  Node root_;
  std::vector<Node*> open_;
  std::string key_;
  std::size_t values_ = 0;
};

class Inference {
 public:
  explicit Inference(const JsonExpansion& rules) : rules_(rules) {}

  bool failed() const { return failed_; }

  // Nothing for what has no type and is left out.
  std::optional<Shape> Of(Node* node) {
    if (failed_) {
      return std::nullopt;
    }
    Shape shape;
    shape.kind = node->kind;
    switch (node->kind) {
      case Kind::kNull:
        return rules_.keep_nulls ? std::optional(std::move(shape)) : std::nullopt;
      case Kind::kObject:
        return OfObject(node);
      case Kind::kArray:
        break;
      default:
        return shape;
    }
    if (node->elements.empty()) {
      return rules_.keep_empty_arrays ? std::optional(std::move(shape)) : std::nullopt;
    }
    std::optional<Shape> element = OfElements(node);
    if (!element) {
      failed_ = true;
      return std::nullopt;
    }
    shape.element.push_back(*std::move(element));
    return shape;
  }

 private:
  Shape OfObject(Node* node) {
    Shape shape;
    shape.kind = Kind::kObject;
    for (auto& [name, member] : node->members.items()) {
      std::optional<Shape> found = Of(&member);
      if (found) {
        failed_ = failed_ || name.empty();  // a field of Kafka Connect has a name
        shape.members.Add(name) = *std::move(found);
      }
    }
    return shape;
  }

  // Elements that are not null must be of one type.
  std::optional<Shape> OfElements(Node* node) {
    Node* sample = nullptr;
    for (Node& element : node->elements) {
      if (element.kind == Kind::kNull) {
        continue;
      }
      sample = sample == nullptr ? &element : sample;
      if (element.kind != sample->kind) {
        return std::nullopt;
      }
    }
    if (sample == nullptr) {
      return Of(&node->elements.front());
    }
    if (sample->kind != Kind::kObject) {
      return Of(sample);
    }
    Shape merged;
    merged.kind = Kind::kObject;
    for (Node& element : node->elements) {
      if (element.kind == Kind::kObject) {
        Merge(OfObject(&element), &merged);
      }
    }
    return merged;
  }

  // Fails above the limit, and does no more then.
  void Merge(Shape from, Shape* into) {
    if (failed_) {
      return;
    }
    if (into->kind == Kind::kNull) {
      *into = std::move(from);
      return;
    }
    if (from.kind != into->kind) {
      return;  // found out when it is written
    }
    for (auto& [name, member] : from.members.items()) {
      merge_steps_ += 1 + name.size() / kNameBytesPerStep;
      if (merge_steps_ > kMergeStepsMax) {
        failed_ = true;
        return;
      }
      Shape* known = into->members.Find(name);
      if (known == nullptr) {
        into->members.Add(name) = std::move(member);
      } else {
        Merge(std::move(member), known);
      }
    }
    if (into->element.empty()) {
      into->element = std::move(from.element);
    } else if (!from.element.empty()) {
      Merge(std::move(from.element[0]), &into->element[0]);
    }
  }

  const JsonExpansion& rules_;
  bool failed_ = false;
  std::size_t merge_steps_ = 0;
};

// Writes a tree in its shape; false when it does not fit, or becomes too long.
class Writer {
 public:
  // `size_max` of what is in `out` then.
  Writer(std::string* out, std::size_t size_max) : out_(out), size_max_(size_max) {}

  bool Write(Node* node, Shape* shape) {
    if (node->kind == Kind::kNull) {
      return Append("null");
    }
    if (node->kind != shape->kind) {
      return false;
    }
    switch (node->kind) {
      case Kind::kObject:
        return WriteObject(node, shape);
      case Kind::kArray:
        return WriteArray(node, shape);
      case Kind::kText:
        return AppendJsonText(node->text, out_) && out_->size() <= size_max_;
      default:
        break;
    }
    // An infinite number cannot come from JSON.
    return Append(node->text);
  }

 private:
  bool Append(std::string_view text) {
    out_->append(text);
    return out_->size() <= size_max_;
  }

  bool WriteObject(Node* node, Shape* shape) {
    *out_ += '{';
    bool first = true;
    for (auto& [name, member] : shape->members.items()) {
      if (!first) {
        *out_ += ',';
      }
      first = false;
      if (!AppendJsonText(name, out_)) {
        return false;
      }
      *out_ += ':';
      Node* value = node->members.Find(name);
      if (value == nullptr ? !Append("null") : !Write(value, &member)) {
        return false;
      }
    }
    *out_ += '}';
    return true;
  }

  bool WriteArray(Node* node, Shape* shape) {
    *out_ += '[';
    for (std::size_t i = 0; i < node->elements.size(); ++i) {
      if (i > 0) {
        *out_ += ',';
      }
      if (shape->element.empty() || !Write(&node->elements[i], &shape->element[0])) {
        return false;
      }
    }
    *out_ += ']';
    return true;
  }

  std::string* const out_;
  const std::size_t size_max_;
};

}  // namespace

bool ExpandJson(std::string_view text, const JsonExpansion& rules, std::string* out) {
  if (text.empty() || text[0] != '{') {
    return false;  // an array has no fields
  }
  TreeBuilder tree;
  // Not strict: what follows the document is not looked at.
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &tree,
                                 nlohmann::json::input_format_t::json, /*strict=*/false)) {
    return false;
  }
  Inference inference(rules);
  std::optional<Shape> shape = inference.Of(&tree.root());
  if (!shape || inference.failed()) {
    return false;
  }
  const std::size_t size = out->size();
  if (!Writer(out, size + JsonOutputMax(text.size())).Write(&tree.root(), &*shape)) {
    out->resize(size);
    return false;
  }
  return true;
}

}  // namespace walpost::outbox

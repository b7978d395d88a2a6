#include "io/tensors/unpickler.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "io/tensors/pickle_names.hpp"
#include "io/tensors/torch_storage.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

constexpr size_t kMostValues = 2'000'000;
constexpr size_t kMostReferences = 8'000'000;
// Limit on the total dimensions of all tensors, because the memo makes repetition cheap (three bytes can request a copy of any tensor).
constexpr size_t kMostDimensions = 8'000'000;
constexpr size_t kLongestKey = 1024;
constexpr std::string_view kOldTensor = "torch._utils _rebuild_tensor";

}  // namespace

template <class... Parts>
void Unpickler::require(bool ok, const Parts&... parts) const {
  check(ok, kind_, "pth", source_, ": ", parts...);
}

Unpickler::Unpickler(std::string bytes, std::string source, ErrorKind kind)
    : bytes_(std::move(bytes)), source_(std::move(source)), kind_(kind) {
  false_.kind = true_.kind = Kind::Boolean;
  true_.integer = 1;
  run();
}

void Unpickler::run() {
  while (result_ == nullptr) {
    require(stack_.size() <= kMostReferences, "the pickle pushes too many values");
    const auto op = take_number<unsigned char>();
    if (step_constant(op) || step_container(op) || step_memo(op)) continue;
    step_call(op);
  }
}

std::string_view Unpickler::take(uint64_t bytes) {
  require(bytes <= bytes_.size() - at_, "the pickle is truncated");
  const auto out = std::string_view(bytes_).substr(at_, bytes);
  at_ += bytes;
  return out;
}

template <class T>
T Unpickler::take_number() {
  T out{};
  std::memcpy(&out, take(sizeof out).data(), sizeof out);
  return out;
}

std::string_view Unpickler::take_line() {
  const auto end = bytes_.find('\n', at_);
  require(end != std::string::npos, "the pickle is truncated");
  const auto out = std::string_view(bytes_).substr(at_, end - at_);
  at_ = end + 1;
  return out;
}

PickleValue* Unpickler::make(Kind kind) {
  require(values_.size() < kMostValues, "the pickle creates more than 2,000,000 values");
  values_.emplace_back().kind = kind;
  return &values_.back();
}

void Unpickler::push_integer(int64_t value) {
  auto* out = make(Kind::Integer);
  out->integer = value;
  push(out);
}

void Unpickler::push_text(uint64_t bytes) {
  const auto text = take(bytes);
  auto* out = make(Kind::Text);
  out->text = text;
  push(out);
}

void Unpickler::push_other(uint64_t bytes) {
  take(bytes);
  push(make(Kind::Other));
}

// Reads a little-endian two's complement number. Skips longer numbers (states of random number generators), which are never sizes of
// tensors.
void Unpickler::push_long(uint64_t bytes) {
  if (bytes > sizeof(int64_t)) return push_other(bytes);
  const auto digits = take(bytes);
  int64_t value = !digits.empty() && (digits.back() & 0x80) ? -1 : 0;
  std::memcpy(&value, digits.data(), digits.size());
  push_integer(value);
}

PickleValue* Unpickler::top() const {
  require(!stack_.empty() && stack_.back()->kind != Kind::Mark, "the pickle pops a value from an empty stack");
  return stack_.back();
}

PickleValue* Unpickler::pop() {
  auto* out = top();
  stack_.pop_back();
  return out;
}

std::vector<PickleValue*> Unpickler::pop_to_mark() {
  const auto mark = std::find_if(stack_.rbegin(), stack_.rend(), [](const PickleValue* v) { return v->kind == Kind::Mark; });
  require(mark != stack_.rend(), "the pickle pops to a mark that was never set");
  std::vector<PickleValue*> out(mark.base(), stack_.end());
  stack_.erase(std::prev(mark.base()), stack_.end());
  return out;
}

void Unpickler::put_items(PickleValue* into, const std::vector<PickleValue*>& items) {
  references_ += items.size();
  require(references_ <= kMostReferences, "the lists and dicts of the pickle contain more than 8,000,000 values");
  into->items.insert(into->items.end(), items.begin(), items.end());
}

void Unpickler::push_tuple(const std::vector<PickleValue*>& items) {
  auto* out = make(Kind::Tuple);
  put_items(out, items);
  push(out);
}

bool Unpickler::step_constant(unsigned char op) {
  switch (op) {
    case 0x80: {  // PROTO
      const auto version = take_number<unsigned char>();
      require(version >= 2 && version <= 5, "pickle protocol ", int{version}, "; supported: 2 to 5; hint: save it again with torch.save");
      return true;
    }
    case 0x95:
      take(8);
      return true;  // FRAME
    case 'N':
      push(&none_);
      return true;
    case 0x88:
      push(&true_);
      return true;
    case 0x89:
      push(&false_);
      return true;
    case 'J':
      push_integer(take_number<int32_t>());
      return true;  // BININT
    case 'K':
      push_integer(take_number<uint8_t>());
      return true;  // BININT1
    case 'M':
      push_integer(take_number<uint16_t>());
      return true;  // BININT2
    case 0x8a:
      push_long(take_number<uint8_t>());
      return true;  // LONG1
    case 0x8b:
      push_long(take_number<uint32_t>());
      return true;  // LONG4
    case 'G':
      push_other(8);
      return true;  // BINFLOAT
    case 'X':
    case 'T':
      push_text(take_number<uint32_t>());
      return true;  // BINUNICODE, BINSTRING
    case 0x8c:
    case 'U':
      push_text(take_number<uint8_t>());
      return true;  // SHORT_BINUNICODE, SHORT_BINSTRING
    case 0x8d:
      push_text(take_number<uint64_t>());
      return true;  // BINUNICODE8
    case 'B':
      push_other(take_number<uint32_t>());
      return true;  // BINBYTES
    case 'C':
      push_other(take_number<uint8_t>());
      return true;  // SHORT_BINBYTES
    case 0x8e:
      push_other(take_number<uint64_t>());
      return true;  // BINBYTES8
    default:
      return false;
  }
}

void Unpickler::set_items(PickleValue* dict, const std::vector<PickleValue*>& flat) {
  require(dict->kind == Kind::Dict, "the pickle sets a key of an object that is not a dict");
  require(flat.size() % 2 == 0, "the pickle sets a key without a value");
  put_items(dict, flat);
}

void Unpickler::append(PickleValue* list, const std::vector<PickleValue*>& items) {
  require(list->kind == Kind::List, "the pickle appends to an object that is not a list");
  put_items(list, items);
}

// BUILD. Ignores the attributes of a dict (state_dict() adds some to its OrderedDict), which are not needed.
void Unpickler::set_state(PickleValue* object, const PickleValue& state) {
  if (object->kind == Kind::Other) return;
  require(object->kind == Kind::Dict && state.kind == Kind::Dict, "the pickle sets the inner state of an object (BUILD), which is refused");
  if (object->has_attributes) set_items(object, std::vector<PickleValue*>(state.items));  // a copy, because `state` may be `object`
}

bool Unpickler::step_container(unsigned char op) {
  switch (op) {
    case '(':
      push(make(Kind::Mark));
      return true;
    case '}':
      push(make(Kind::Dict));
      return true;
    case ']':
    case 0x8f:
      push(make(Kind::List));
      return true;  // EMPTY_LIST, EMPTY_SET
    case ')':
      push_tuple({});
      return true;
    case 't':
      push_tuple(pop_to_mark());
      return true;
    case 0x85:  // TUPLE1 to TUPLE3
    case 0x86:
    case 0x87: {
      std::vector<PickleValue*> items(op - 0x84u);
      for (size_t i = items.size(); i-- > 0;) items[i] = pop();
      push_tuple(items);
      return true;
    }
    case 'a':
    case 'e': {
      const auto items = op == 'a' ? std::vector<PickleValue*>{pop()} : pop_to_mark();
      append(top(), items);
      return true;
    }
    case 0x90: {  // ADDITEMS
      const auto items = pop_to_mark();
      append(top(), items);
      return true;
    }
    case 0x91:  // FROZENSET
      push_tuple(pop_to_mark());
      return true;
    case 's': {
      auto* value = pop();
      auto* key = pop();
      set_items(top(), {key, value});
      return true;
    }
    case 'u': {
      const auto flat = pop_to_mark();
      set_items(top(), flat);
      return true;
    }
    case '0':
      require(!stack_.empty(), "the pickle pops a value from an empty stack");
      stack_.pop_back();
      return true;
    case '1':
      pop_to_mark();
      return true;
    case '2':
      push(top());
      return true;
    default:
      return false;
  }
}

bool Unpickler::step_memo(unsigned char op) {
  const auto get = [this](uint64_t index) {
    const auto found = memo_.find(index);
    require(found != memo_.end(), "the pickle reads a memo that was never written");
    push(found->second);
  };
  const auto put = [this](uint64_t index) {
    memo_[index] = top();
    require(memo_.size() <= kMostValues, "the memo of the pickle has more than 2,000,000 values");
  };
  switch (op) {
    case 'q':
      put(take_number<uint8_t>());
      return true;
    case 'r':
      put(take_number<uint32_t>());
      return true;
    case 0x94:
      put(memo_.size());
      return true;  // MEMOIZE
    case 'h':
      get(take_number<uint8_t>());
      return true;
    case 'j':
      get(take_number<uint32_t>());
      return true;
    default:
      return false;
  }
}

void Unpickler::step_call(unsigned char op) {
  switch (op) {
    case 'c': {  // GLOBAL
      const auto module = take_line();
      push_global(module, take_line());
      return;
    }
    case 0x93: {  // STACK_GLOBAL
      const auto* name = pop();
      const auto* module = pop();
      require(name->kind == Kind::Text && module->kind == Kind::Text, "the pickle names a class with an object that is not text");
      push_global(module->text, name->text);
      return;
    }
    case 'R': {  // REDUCE
      const auto* arguments = pop();
      const auto* function = pop();
      require(function->kind == Kind::Global && arguments->kind == Kind::Tuple, "the pickle calls an object that is not a function");
      push(call(*function, *arguments));
      return;
    }
    case 0x81: {  // NEWOBJ
      const auto* arguments = pop();
      const auto* type = pop();
      require(type->kind == Kind::Global && is_plain_class(type->text) && arguments->kind == Kind::Tuple,
              "the pickle creates an object (NEWOBJ) that is not plain data, which is refused");
      push(plain_object(type->text, *arguments));
      return;
    }
    case 'b': {
      const auto* state = pop();
      set_state(top(), *state);
      return;
    }
    case 'Q':
      push(load_storage(*pop()));
      return;
    case '.':
      result_ = pop();
      return;
    default: {
      static constexpr char digits[] = "0123456789abcdef";
      const std::string code = {'0', 'x', digits[op >> 4], digits[op & 15]};
      require(false, "the pickle has the instruction ", code, op > 0x20 && op < 0x7f ? std::string(" '") + static_cast<char>(op) + "'" : "",
              ", which weight files do not need; it is refused; hint: save only a state_dict: torch.save(model.state_dict(), path)");
    }
  }
}

void Unpickler::push_global(std::string_view module, std::string_view name) {
  constexpr size_t kLongestGlobal = 200;  // far above the length of every known name
  auto global = std::string(module.substr(0, kLongestGlobal)).append(" ").append(name.substr(0, kLongestGlobal));
  if (globals_.count(global) == 0)
    require(is_known_global(global), "the pickle refers to '", printable(module), ".", printable(name), "'; ", refused_global_hint(global));
  auto* out = make(Kind::Global);
  out->text = *globals_.insert(std::move(global)).first;
  push(out);
}

// Returns the value of an object of a plain data class, without executing its code. If the items are the only argument, that argument
// represents the object, so nothing is copied.
PickleValue* Unpickler::plain_object(std::string_view name, const PickleValue& arguments) {
  const auto form = plain_form(name);
  const auto& items = arguments.items;
  if (form == PlainForm::Value) return make(Kind::Other);
  const auto holds = form == PlainForm::List ? Kind::List : Kind::Dict;
  const bool factory = form == PlainForm::Dict && items.size() == 1 && (items[0]->kind == Kind::None || items[0]->kind == Kind::Global);
  if (items.empty() || factory || (form == PlainForm::List && items.size() == 2)) {  // the last case is deque((), maxlen)
    auto* out = make(holds);
    out->has_attributes = form == PlainForm::Attributes;
    return out;
  }
  if (form == PlainForm::Dict && items.size() == 1 && items[0]->kind == Kind::List) return dict_of_pairs(*items[0], name);
  require(items.size() == 1 && (items[0]->kind == holds || (form == PlainForm::List && items[0]->kind == Kind::Tuple)), "a call of ", name,
          " with arguments other than its items is refused");
  return items[0];
}

// Reads OrderedDict([[key, value], ...]), as saved by Python 2.
PickleValue* Unpickler::dict_of_pairs(const PickleValue& pairs, std::string_view name) {
  auto* out = make(Kind::Dict);
  for (const auto* pair : pairs.items) {
    require((pair->kind == Kind::List || pair->kind == Kind::Tuple) && pair->items.size() == 2, "a call of ", name,
            " with a list that does not have pairs is refused");
    set_items(out, pair->items);
  }
  return out;
}

PickleValue* Unpickler::call(const PickleValue& function, const PickleValue& arguments) {
  if (is_plain_class(function.text)) return plain_object(function.text, arguments);
  if (function.text == "torch._utils _rebuild_parameter") {
    require(arguments.items.size() == 3 && arguments.items[0]->kind == Kind::Tensor, "a parameter has no tensor");
    return arguments.items[0];
  }
  if (function.text == "torch_npu.npu._format Format") {
    require(arguments.items.size() == 1 && arguments.items[0]->kind == Kind::Integer, "an NPU format is not an integer");
    return arguments.items[0];
  }
  const bool from_npu = function.text == "torch_npu.utils.storage _rebuild_npu_tensor";
  require(from_npu || function.text == "torch._utils _rebuild_tensor_v2" || function.text == kOldTensor, "the pickle calls '",
          function.text, "' as a function, which is refused");
  return rebuild_tensor(arguments, from_npu);
}

std::vector<int64_t> Unpickler::integers(const PickleValue& value, const char* what) const {
  require(value.kind == Kind::Tuple && value.items.size() <= 64, "the ", what, " of a tensor is not a tuple of integers");
  std::vector<int64_t> out;
  for (const auto* item : value.items) {
    require(item->kind == Kind::Integer, "the ", what, " of a tensor is not a tuple of integers");
    out.push_back(item->integer);
  }
  return out;
}

// Returns whether a dict, given as alternating keys and values, has only metadata of torch_npu. This metadata can be ignored, because the
// stored elements are in the usual order, whatever order they had on the NPU.
bool Unpickler::has_only_npu_metadata(const PickleValue& dict) {
  for (size_t i = 0; i < dict.items.size(); i += 2)
    if (dict.items[i]->kind != Kind::Text || !is_npu_metadata(dict.items[i]->text)) return false;
  return true;
}

// _rebuild_tensor(storage, storage_offset, size, stride), before PyTorch 0.4
// _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks[, metadata])
// _rebuild_npu_tensor(..., backward_hooks, memory format on the NPU)
PickleValue* Unpickler::rebuild_tensor(const PickleValue& arguments, bool from_npu) {
  const auto& items = arguments.items;
  require(
      (items.size() == 4 || items.size() == 6 || items.size() == 7) && items[0]->kind == Kind::Storage && items[1]->kind == Kind::Integer,
      "a tensor is not described by storage, offset, size and stride");
  if (items.size() == 7 && !from_npu) {
    // Accepts torch_npu's metadata (the format that the tensor had on the NPU), but no other metadata. For example, "negated" marks a
    // negation that the stored values do not include yet.
    require(items[6]->kind == Kind::None || (items[6]->kind == Kind::Dict && has_only_npu_metadata(*items[6])),
            "a tensor that is only marked as conjugated or negated is not read; hint: torch.save(tensor.resolve_neg(), path)");
  }
  auto* out = make(Kind::Tensor);
  out->tensor = std::make_unique<PickledTensor>(*items[0]->tensor);
  out->tensor->offset = items[1]->integer;
  out->tensor->size = integers(*items[2], "size");
  out->tensor->stride = integers(*items[3], "stride");
  require(out->tensor->size.size() == out->tensor->stride.size(), "a tensor has ", out->tensor->size.size(), " sizes and ",
          out->tensor->stride.size(), " strides");
  dimensions_ += 1 + out->tensor->size.size();
  require(dimensions_ <= kMostDimensions, "the tensors have more than 8,000,000 dimensions in total");
  return out;
}

// Caches storages, because a memoised id may be requested any number of times.
PickleValue* Unpickler::load_storage(const PickleValue& id) {
  auto& known = storages_[&id];
  if (known == nullptr) known = make_storage(id);
  return known;
}

std::unordered_map<std::string, const PickledTensor*> Unpickler::storages() const {
  std::unordered_map<std::string, const PickledTensor*> out;
  for (const auto& [id, storage] : storages_) out.emplace(std::string(storage->tensor->key), storage->tensor.get());
  return out;
}

// ("storage", type, key, location, number of elements); before PyTorch 1.6 also a view of another storage, or None
PickleValue* Unpickler::make_storage(const PickleValue& id) {
  const auto& items = id.items;
  require(id.kind == Kind::Tuple && (items.size() == 5 || (items.size() == 6 && items[5]->kind == Kind::None)) &&
              items[0]->kind == Kind::Text && items[0]->text == "storage" && items[1]->kind == Kind::Global &&
              !storage_of(items[1]->text).empty() && items[2]->kind == Kind::Text && items[4]->kind == Kind::Integer,
          "the pickle has a persistent id that is not a storage");
  require(items[2]->text.size() <= kLongestKey, "the name of a storage has ", items[2]->text.size(), " bytes");
  auto* out = make(Kind::Storage);
  out->tensor = std::make_unique<PickledTensor>();
  out->tensor->dtype = *storage_dtype(storage_of(items[1]->text));
  out->tensor->key = items[2]->text;
  out->tensor->storage_size = items[4]->integer;
  return out;
}

}  // namespace npu_train::detail

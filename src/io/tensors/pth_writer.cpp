#include "npu_train/io/pth_writer.hpp"

#include <c10/util/strides.h>

#include <bit>
#include <limits>

#include "io/tensors/host_tensor.hpp"
#include "io/tensors/torch_storage.hpp"
#include "io/tensors/zip_writer.hpp"
#include "npu_train/io/pickle.hpp"

namespace npu_train {
namespace {

void append_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i);
}

void append_integer(std::string& out, int64_t value) {
  if (value >= 0 && value <= 0xff) {
    out += 'K';  // BININT1
    append_little_endian(out, static_cast<uint64_t>(value), 1);
  } else if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    out += 'J';  // BININT
    append_little_endian(out, static_cast<uint64_t>(value), 4);
  } else {
    out += "\x8a\x08";  // LONG1 of 8 bytes
    append_little_endian(out, static_cast<uint64_t>(value), 8);
  }
}

void append_text(std::string& out, std::string_view text) {
  out += 'X';  // BINUNICODE
  append_little_endian(out, text.size(), 4);
  out += text;
}

void append_tuple(std::string& out, at::IntArrayRef values) {
  out += '(';  // MARK
  for (const auto value : values) append_integer(out, value);
  out += 't';  // TUPLE
}

// Writes a value as Python's pickle does in protocol 2, but without the memo, which is not needed here. Collects the tensors: the archive
// stores their data as data/0, data/1 ...
class Pickler {
 public:
  Pickler(const std::string& path, std::vector<at::Tensor>& tensors) : path_(path), tensors_(tensors) {}

  std::string pickle(const PthValue& value) {
    out_ = "\x80\x02";  // PROTO 2
    add(value);
    return out_ += '.';  // STOP
  }

 private:
  using Kind = PthValue::Kind;

  void add(const PthValue& value) {
    switch (value.kind()) {
      case Kind::None:
        out_ += 'N';
        break;
      case Kind::Boolean:
        out_ += value.integer() != 0 ? '\x88' : '\x89';
        break;  // NEWTRUE, NEWFALSE
      case Kind::Integer:
        append_integer(out_, value.integer());
        break;
      case Kind::Number:
        add_number(value.number());
        break;
      case Kind::Text:
        append_text(out_, value.text());
        break;
      case Kind::Tensor:
        add_tensor(value.tensor());
        break;
      case Kind::List:
        add_items("](", value, 'e');
        break;  // EMPTY_LIST, MARK ... APPENDS
      case Kind::Tuple:
        add_items("(", value, 't');
        break;  // MARK ... TUPLE
      case Kind::Dict:
        add_items("}(", value, 'u');
        break;  // EMPTY_DICT, MARK ... SETITEMS
    }
  }

  void add_items(const char* begin, const PthValue& value, char end) {
    out_ += begin;
    for (const auto& item : value.items()) add(item);
    out_ += end;
  }

  void add_number(double value) {
    out_ += 'G';  // BINFLOAT, big-endian
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int i = 7; i >= 0; --i) out_ += static_cast<char>(bits >> 8 * i);
  }

  void add_tensor(const at::Tensor& tensor) {
    check(tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized(), ErrorKind::Usage, "pt", path_,
          ": not a dense tensor");
    const auto* storage = detail::storage_name(tensor.scalar_type());
    check(storage != nullptr, ErrorKind::Usage, "pt", path_, ": tensors of dtype ", c10::toString(tensor.scalar_type()),
          " are not written; hint: convert the tensor to float32 first");
    out_ += "ctorch._utils\n_rebuild_tensor_v2\n(";
    out_ += '(';
    append_text(out_, "storage");
    out_ += std::string("ctorch\n") + storage + "\n";
    append_text(out_, std::to_string(tensors_.size()));
    append_text(out_, "cpu");
    append_integer(out_, tensor.numel());
    out_ += "tQ";  // TUPLE, BINPERSID
    append_integer(out_, 0);
    append_tuple(out_, tensor.sizes());
    append_tuple(out_, c10::contiguous_strides(tensor.sizes()));
    out_ += "\x89";  // NEWFALSE: requires_grad
    out_ +=
        "ccollections\nOrderedDict\n)R"  // no backward hooks
        "tR";                            // TUPLE, REDUCE
    tensors_.push_back(tensor);
  }

  const std::string& path_;
  std::vector<at::Tensor>& tensors_;
  std::string out_;
};

}  // namespace

PthValue PthValue::dict(const NamedTensors& tensors) {
  auto out = dict();
  for (const auto& [name, tensor] : tensors) out.set(name, tensor);
  return out;
}

PthValue& PthValue::append(PthValue item) {
  check(kind_ == Kind::List || kind_ == Kind::Tuple, ErrorKind::Usage, "pt", "only a list or a tuple can be appended to");
  items_.push_back(std::move(item));
  return *this;
}

PthValue& PthValue::set(PthValue key, PthValue value) {
  check(kind_ == Kind::Dict && (key.kind_ == Kind::Text || key.kind_ == Kind::Integer), ErrorKind::Usage, "pt",
        "only a dict has keys, and they are texts or integers");
  items_.push_back(std::move(key));
  items_.push_back(std::move(value));
  return *this;
}

WrittenFile save_pth(const std::filesystem::path& path, const PthValue& value, Durability durability) {
  return translated("pt", [&] {
    const auto where = path.string();
    std::vector<at::Tensor> tensors;
    const auto pickle = Pickler(where, tensors).pickle(value);
    AtomicFile file(path, durability);
    detail::ZipWriter zip(file);
    zip.add("archive/data.pkl", pickle);
    zip.add("archive/byteorder", "little");
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto host = detail::host_contiguous(tensors[i]);
      zip.add("archive/data/" + std::to_string(i), host.const_data_ptr(), host.nbytes());
    }
    zip.add("archive/version", "3\n");
    zip.finish();
    file.commit();
    return WrittenFile{file.size(), file.checksum()};
  });
}

WrittenFile save_pt(const std::filesystem::path& path, const at::Tensor& tensor, Durability durability) {
  return save_pth(path, tensor, durability);
}

}  // namespace npu_train

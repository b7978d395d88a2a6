#include <limits>
#include <string>

#include "io/host_tensor.hpp"
#include "io/torch_storage.hpp"
#include "io/zip_writer.hpp"
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

// What Python's pickle makes of a tensor, in protocol 2 and without the memo, which nothing here needs.
std::string pickle_of(const at::Tensor& tensor, const char* storage) {
  std::string out = "\x80\x02";  // PROTO 2
  out += "ctorch._utils\n_rebuild_tensor_v2\n(";
  out += '(';
  append_text(out, "storage");
  out += std::string("ctorch\n") + storage + "\n";
  append_text(out, "0");
  append_text(out, "cpu");
  append_integer(out, tensor.numel());
  out += "tQ";  // TUPLE, BINPERSID
  append_integer(out, 0);
  append_tuple(out, tensor.sizes());
  append_tuple(out, tensor.strides());
  out += "\x89";  // NEWFALSE: requires_grad
  out +=
      "ccollections\nOrderedDict\n)R"  // no backward hooks
      "tR.";                           // TUPLE, REDUCE, STOP
  return out;
}

}  // namespace

WrittenFile save_pt(const std::filesystem::path& path, const at::Tensor& tensor, Durability durability) {
  const auto where = path.string();
  check(tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized(), ErrorKind::Usage, "pt", where,
        ": not a dense tensor");
  const auto* storage = detail::storage_name(tensor.scalar_type());
  check(storage != nullptr, ErrorKind::Usage, "pt", where, ": tensors of dtype ", c10::toString(tensor.scalar_type()),
        " are not written; hint: convert the tensor to float32 first");
  return translated("pt", [&] {
    const auto host = detail::host_contiguous(tensor);
    AtomicFile file(path, durability);
    detail::ZipWriter zip(file);
    zip.add("archive/data.pkl", pickle_of(host, storage));
    zip.add("archive/byteorder", "little");
    zip.add("archive/data/0", host.const_data_ptr(), host.nbytes());
    zip.add("archive/version", "3\n");
    zip.finish();
    file.commit();
    return WrittenFile{file.size(), file.checksum()};
  });
}

}  // namespace npu_train

#include "io/tensors/zip_writer.hpp"

#include <algorithm>
#include <array>

#include "io/tensors/deflate.hpp"

namespace npu_train::detail {
namespace {

constexpr uint64_t kLargest32 = 0xffffffff;  // larger sizes, and this size itself, are in the zip64 field
constexpr uint64_t kLocalHeaderBytes = 30;
constexpr uint16_t kZip64Field = 1;
constexpr uint16_t kPaddingField = 0x4246;  // "FB", the padding field of torch.save
constexpr uint16_t kVersionStored = 20, kVersionZip64 = 45;
constexpr uint16_t kUtf8Names = 1 << 11;

// A sequence of little-endian numbers.
class Record {
 public:
  Record& u16(uint64_t value) { return number(value, 2); }
  Record& u32(uint64_t value) { return number(value, 4); }
  Record& u64(uint64_t value) { return number(value, 8); }
  Record& text(std::string_view value) {
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Record& number(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_ += static_cast<char>(value >> 8 * i);
    return *this;
  }
  std::string bytes_;
};

}  // namespace

void ZipWriter::add(const std::string& name, const void* data, uint64_t bytes) {
  const Entry entry{name, file_.size(), bytes, zip_crc32(data, bytes)};
  const bool zip64 = bytes >= kLargest32;
  Record extra;
  if (zip64) extra.u16(kZip64Field).u16(16).u64(bytes).u64(bytes);
  const auto before = entry.offset + kLocalHeaderBytes + name.size() + extra.bytes().size() + 4;
  const auto padding = (kAlignment - before % kAlignment) % kAlignment;
  extra.u16(kPaddingField).u16(padding).text(std::string(padding, 'Z'));
  const auto size = zip64 ? kLargest32 : bytes;
  // Sets no date, so that equal tensors give equal files.
  Record local;
  local.text("PK\x03\x04").u16(zip64 ? kVersionZip64 : kVersionStored).u16(kUtf8Names).u16(0).u32(0);
  local.u32(entry.crc).u32(size).u32(size).u16(name.size()).u16(extra.bytes().size()).text(name).text(extra.bytes());
  file_.write(local.bytes());
  file_.write(data, bytes);
  entries_.push_back(entry);
}

void ZipWriter::finish() {
  const auto begin = file_.size();
  for (const auto& entry : entries_) {
    const bool large = entry.bytes >= kLargest32, far = entry.offset >= kLargest32;
    Record field;
    if (large) field.u64(entry.bytes).u64(entry.bytes);
    if (far) field.u64(entry.offset);
    Record extra;
    if (large || far) extra.u16(kZip64Field).u16(field.bytes().size()).text(field.bytes());
    const auto version = large || far ? kVersionZip64 : kVersionStored;
    const auto size = large ? kLargest32 : entry.bytes;
    Record central;
    central.text("PK\x01\x02").u16(version).u16(version).u16(kUtf8Names).u16(0).u32(0);
    central.u32(entry.crc).u32(size).u32(size).u16(entry.name.size()).u16(extra.bytes().size());
    central.u16(0).u16(0).u16(0).u32(0).u32(far ? kLargest32 : entry.offset).text(entry.name).text(extra.bytes());
    file_.write(central.bytes());
  }
  const auto bytes = file_.size() - begin;
  const auto end64 = file_.size();
  Record end;
  if (begin >= kLargest32) {
    end.text("PK\x06\x06").u64(44).u16(kVersionZip64).u16(kVersionZip64).u32(0).u32(0);
    end.u64(entries_.size()).u64(entries_.size()).u64(bytes).u64(begin);
    end.text("PK\x06\x07").u32(0).u64(end64).u32(1);
  }
  end.text("PK\x05\x06").u16(0).u16(0).u16(entries_.size()).u16(entries_.size()).u32(bytes).u32(std::min(begin, kLargest32)).u16(0);
  file_.write(end.bytes());
}

}  // namespace npu_train::detail

#include "io/tensors/zip_archive.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/tensors/deflate.hpp"

namespace npu_train::detail {
namespace {

constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kLocatorBytes = 20;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kCentralBytes = 46;
constexpr uint64_t kLocalBytes = 30;
// Limit on the total unpacked size, relative to the file's size: weights compress little, zip bombs a lot.
constexpr uint64_t kMostUnpackedPerByte = 20;
constexpr uint64_t kUnpackedAnyway = uint64_t{64} << 20;

template <class T>
T number_at(std::string_view bytes, size_t at) {
  T out{};
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

}  // namespace

template <class... Parts>
void ZipArchive::require(bool ok, const Parts&... parts) const {
  check(ok, file_.kind(), "pth", file_.path().string(), ": ", parts..., "; hint: the file is truncated or damaged; use another copy");
}

ZipArchive::ZipArchive(ReadableFile file, uint64_t largest_directory) : file_(std::move(file)) {
  const auto directory = find_directory();
  require(directory.bytes <= largest_directory, "the zip directory has ", directory.bytes, " bytes; allowed: at most ", largest_directory);
  content_end_ = directory.offset;
  read_directory(directory);
}

ZipArchive::Directory ZipArchive::find_directory() const {
  require(file_.size() >= kEndBytes, "only ", file_.size(), " bytes; not a zip archive");
  const uint64_t tail_bytes = std::min<uint64_t>(file_.size(), kEndBytes + 0xffff);
  const uint64_t tail_begin = file_.size() - tail_bytes;
  const auto tail = file_.read(tail_begin, tail_bytes);
  auto at = tail.rfind(std::string_view("PK\x05\x06", 4));
  while (at != std::string::npos && (at + kEndBytes > tail.size() || at + kEndBytes + number_at<uint16_t>(tail, at + 20) != tail.size())) {
    at = at == 0 ? std::string::npos : tail.rfind(std::string_view("PK\x05\x06", 4), at - 1);
  }
  require(at != std::string::npos, "the end of the zip archive is missing");
  require(number_at<uint16_t>(tail, at + 4) == 0 && number_at<uint16_t>(tail, at + 6) == 0, "a zip archive in several parts");
  Directory out{number_at<uint32_t>(tail, at + 16), number_at<uint32_t>(tail, at + 12), number_at<uint16_t>(tail, at + 10)};

  const uint64_t end_at = tail_begin + at;
  if (end_at >= kLocatorBytes) {
    const auto locator = file_.read(end_at - kLocatorBytes, kLocatorBytes);
    if (locator.starts_with(std::string_view("PK\x06\x07", 4))) {
      const auto end64_at = number_at<uint64_t>(locator, 8);
      require(end64_at <= end_at - kLocatorBytes && end_at - kLocatorBytes - end64_at >= kEnd64Bytes,
              "the zip64 record is outside the file");
      const auto end64 = file_.read(end64_at, kEnd64Bytes);
      require(end64.starts_with(std::string_view("PK\x06\x06", 4)), "the zip64 record is damaged");
      out = {number_at<uint64_t>(end64, 48), number_at<uint64_t>(end64, 40), number_at<uint64_t>(end64, 32)};
    }
  }
  require(out.offset <= end_at && out.bytes <= end_at - out.offset, "the zip directory is outside the file");
  require(out.entries <= out.bytes / kCentralBytes, "the zip directory claims ", out.entries, " entries in ", out.bytes, " bytes");
  return out;
}

void ZipArchive::take_zip64(std::string_view extra, Entry& entry, bool size, bool packed, bool offset) const {
  while (extra.size() >= 4) {
    const auto id = number_at<uint16_t>(extra, 0);
    const size_t bytes = number_at<uint16_t>(extra, 2);
    require(bytes <= extra.size() - 4, "an extra field reaches outside its entry");
    if (id == 1) {
      auto field = extra.substr(4, bytes);
      for (const auto& [wanted, value] :
           {std::pair{size, &entry.size}, std::pair{packed, &entry.packed}, std::pair{offset, &entry.offset}}) {
        if (!wanted) continue;
        require(field.size() >= 8, "a zip64 field is too short");
        *value = number_at<uint64_t>(field, 0);
        field.remove_prefix(8);
      }
      return;
    }
    extra.remove_prefix(4 + bytes);
  }
  require(!size && !packed && !offset, "a zip64 field is missing");
}

void ZipArchive::read_directory(const Directory& directory) {
  const auto all = file_.read(directory.offset, directory.bytes);
  std::string_view rest = all;
  uint64_t packed_sum = 0;
  uint64_t unpacked_left = file_.size() * kMostUnpackedPerByte + kUnpackedAnyway;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    require(rest.size() >= kCentralBytes && rest.starts_with(std::string_view("PK\x01\x02", 4)), "entry ", i,
            " of the zip directory is damaged");
    const size_t name_bytes = number_at<uint16_t>(rest, 28);
    const size_t extra_bytes = number_at<uint16_t>(rest, 30);
    const size_t comment_bytes = number_at<uint16_t>(rest, 32);
    require(kCentralBytes + name_bytes + extra_bytes + comment_bytes <= rest.size(), "entry ", i,
            " of the zip directory reaches outside it");
    Entry entry{number_at<uint32_t>(rest, 42), number_at<uint32_t>(rest, 20), number_at<uint32_t>(rest, 24), number_at<uint32_t>(rest, 16),
                number_at<uint16_t>(rest, 10)};
    const std::string name(rest.substr(kCentralBytes, name_bytes));
    take_zip64(rest.substr(kCentralBytes + name_bytes, extra_bytes), entry, entry.size == 0xffffffff, entry.packed == 0xffffffff,
               entry.offset == 0xffffffff);
    require((number_at<uint16_t>(rest, 8) & 1) == 0, "'", name, "' is encrypted");
    require(entry.method == 0 || entry.method == 8, "'", name, "' is packed by method ", entry.method, "; known: stored and deflate");
    require(entry.offset <= directory.offset && directory.offset - entry.offset >= kLocalBytes, "'", name, "' begins outside the file");
    require(entry.packed <= directory.offset - entry.offset - kLocalBytes, "'", name, "' reaches outside the file");
    require(entry.method == 8 || entry.packed == entry.size, "'", name, "' is stored with two sizes");
    packed_sum += entry.packed;  // entries that overlap could unpack to many times the size of the file
    require(packed_sum <= file_.size(), "the entries together are larger than the file");
    require(entry.size <= unpacked_left, "the entries unpack to far more than the file's ", file_.size(),
            " bytes; torch.save does not pack at all");
    unpacked_left -= entry.size;
    require(entries_.emplace(name, entry).second, "'", name, "' is there twice");
    names_.push_back(name);
    rest.remove_prefix(kCentralBytes + name_bytes + extra_bytes + comment_bytes);
  }
}

const ZipArchive::Entry& ZipArchive::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  require(found != entries_.end(), "there is no '", name.substr(0, 200), "' in the archive");
  return found->second;
}

void ZipArchive::inflate_into(const Entry& entry, uint64_t from, const std::string& name, void* out) const {
  uint64_t taken = 0;
  const auto next = [&] {
    auto piece = file_.read(from + taken, std::min<uint64_t>(entry.packed - taken, uint64_t{1} << 20));
    taken += piece.size();
    return piece;
  };
  const auto problem = inflate_pieces(next, out, entry.size);
  require(problem.empty(), "'", name, "' ", problem);
}

uint64_t ZipArchive::content_begin(const Entry& entry, const std::string& name) const {
  const auto local = file_.read(entry.offset, kLocalBytes);
  require(local.starts_with(std::string_view("PK\x03\x04", 4)), "'", name, "' has no header at its place");
  const uint64_t from = entry.offset + kLocalBytes + number_at<uint16_t>(local, 26) + number_at<uint16_t>(local, 28);
  require(from <= content_end_ && entry.packed <= content_end_ - from, "'", name, "' reaches outside the file");
  return from;
}

std::optional<uint64_t> ZipArchive::stored_at(const std::string& name) const {
  const auto& wanted = entry(name);
  if (wanted.method != 0) return std::nullopt;
  return content_begin(wanted, name);
}

void ZipArchive::read(const std::string& name, void* out) const {
  const auto& wanted = entry(name);
  const uint64_t from = content_begin(wanted, name);
  if (wanted.method == 8) {
    inflate_into(wanted, from, name, out);
  } else {
    file_.read(from, out, wanted.size);
  }
  require(zip_crc32(out, wanted.size) == wanted.crc, "'", name, "' has another CRC-32 than it was written with");
}

std::string ZipArchive::read(const std::string& name) const {
  std::string out(entry(name).size, '\0');
  read(name, out.data());
  return out;
}

}  // namespace npu_train::detail

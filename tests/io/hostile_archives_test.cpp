// Archives and .npy files with false headers, and damage to every part of a valid one.
#include "testing.hpp"

#include <random>

#include "io/hostile.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/npy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using namespace std::string_literals;
namespace fs = std::filesystem;

namespace {

std::string npy_bytes(const std::string& header, const std::string& data) {
  return "\x93NUMPY\1\0"s + raw(static_cast<uint16_t>(header.size())) + header + data;
}

std::string npy_header(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

}  // namespace

TEST_CASE("archives with false claims") {
  const TempDir dir;
  const auto sound = pickle(TensorClaim{}.ops());
  const std::string data(24, '\1');
  const auto good = torch_archive(sound, data);
  read_tensor_file(write_bytes(dir / "x.pt", good));
  const auto refuse = [&](const std::string& content, const std::string& part) { check_refused(write_bytes(dir / "x.pt", content), part); };
  const auto central = good.rfind("PK\1\2"), first_central = good.find("PK\1\2"), end = good.rfind("PK\5\6");
  const auto with = [&](size_t at, const std::string& bytes) { return good.substr(0, at) + bytes + good.substr(at + bytes.size()); };

  refuse(zip({{"a/data.pkl", sound}, {"a/data/0", data}, {"a/data/0", data}}), "there twice");
  refuse(zip({{"a/data.pkl", sound}, {"a/data.pkl", sound}, {"a/data/0", data}}), "there twice");
  refuse(zip({{"../../a/data.pkl", sound}, {"a/data/0", data}}), "missing from the archive");
  refuse(zip({{"a/data.pkl", sound}, {"../a/data/0", data}}), "missing from the archive");
  refuse(zip({{"a/data.pkl", sound, 1}, {"a/data/0", data}}), "method 1");
  refuse(zip({{"a/data.pkl", sound}, {"a/data/0", data, 0, 25}}), "two sizes");
  refuse(zip({{"a/data.pkl", sound}, {"a/data/0", std::string(24, 'x'), 8, 23}}), "23 bytes; its storage claims");
  refuse(zip({{"a/data.pkl", sound, 8, static_cast<int64_t>(sound.size()) - 1}, {"a/data/0", data}}), "more than it claims");
  refuse(zip({{"a/data.pkl", sound, 8, static_cast<int64_t>(sound.size()) + 1}, {"a/data/0", data}}), "does not unpack");
  refuse(with(central + 8, raw<uint16_t>(1)), "encrypted");
  refuse(with(central + 16, raw<uint32_t>(7)), "CRC-32");
  refuse(with(first_central + 16, raw<uint32_t>(7)), "CRC-32");
  refuse(with(central + 42, raw<uint32_t>(1)), "no header at its place");
  refuse(with(central + 42, raw<uint32_t>(0xfffffff0)), "outside the file");
  refuse(with(central + 42, raw(static_cast<uint32_t>(central - 4))), "outside the file");
  refuse(with(central + 42, raw(static_cast<uint32_t>(first_central - 4))), "begins outside the file");
  refuse(with(good.rfind("PK\3\4") + 28, raw<uint16_t>(1)), "reaches outside the file");  // its content would end inside the directory
  refuse(with(central + 28, raw<uint16_t>(0xffff)), "outside it");
  refuse(with(central + 30, raw<uint16_t>(0xffff)), "outside it");
  refuse(with(good.rfind("PK\3\4") + 28, raw<uint16_t>(0xffff)), "outside the file");  // length of the local extra field
  refuse(with(end + 8, raw<uint16_t>(3) + raw<uint16_t>(3)), "3 entries");             // one more entry than there are
  refuse(with(end + 10, raw<uint16_t>(0xffff)), "65535 entries");
  refuse(with(end + 4, raw<uint16_t>(1)), "several parts");
  refuse(with(end + 6, raw<uint16_t>(1)), "several parts");
  refuse(good + "PK\5\6", "end of the zip");
  refuse(with(end + 12, raw<uint32_t>(0xffffffff)), "outside the file");
  refuse(with(end + 16, raw(static_cast<uint32_t>(end))), "outside the file");
  refuse(with(end + 16, raw<uint32_t>(0)), "is damaged");      // the directory would begin at the first entry
  refuse(with(end + 20, raw<uint16_t>(5)), "end of the zip");  // a comment that does not exist
  refuse(with(end, "PK\5\5"), "end of the zip");

  // Zip64 locators that point to themselves, behind the file and before it, and zip64 records with any claims.
  const auto locator = [&](uint64_t at) { return "PK\6\7" + raw<uint32_t>(0) + raw(at) + raw<uint32_t>(1); };
  const auto record = [&](uint64_t entries, uint64_t bytes, uint64_t offset) {
    return "PK\6\6" + raw<uint64_t>(44) + raw<uint16_t>(45) + raw<uint16_t>(45) + raw<uint32_t>(0) + raw<uint32_t>(0) + raw(entries) +
           raw(entries) + raw(bytes) + raw(offset);
  };
  const auto body = good.substr(0, end), tail = good.substr(end);
  const uint64_t begin = first_central, bytes = end - first_central;
  read_tensor_file(write_bytes(dir / "x.pt", body + record(2, bytes, begin) + locator(end) + tail));
  refuse(body + locator(end) + tail, "zip64 record");
  refuse(body + locator(UINT64_MAX) + tail, "zip64 record");
  refuse(body + locator(0) + tail, "zip64 record");
  refuse(body + record(UINT64_MAX, bytes, begin) + locator(end) + tail, "entries in");
  refuse(body + record(2, UINT64_MAX, begin) + locator(end) + tail, "outside the file");
  refuse(body + record(2, bytes, UINT64_MAX) + locator(end) + tail, "outside the file");
  refuse(body + record(2, bytes, begin + 1) + locator(end) + tail, "is damaged");
  for (const size_t at : {20, 24, 42}) refuse(with(central + at, raw<uint32_t>(0xffffffff)), "zip64 field is missing");

  // Returns the archive with extra fields for the last entry, whose sizes and offset refer to a zip64 field if they are `far`.
  const auto with_extra = [&](const std::string& extra, bool far = false) {
    auto entry = good.substr(central, end - central);
    const auto put = [&](size_t at, const std::string& what) { entry.replace(at, what.size(), what); };
    put(30, raw(static_cast<uint16_t>(extra.size())));
    for (const size_t at : {20, 24, 42})
      if (far) put(at, raw<uint32_t>(0xffffffff));
    return good.substr(0, central) + entry + extra + good.substr(end, 12) + raw(static_cast<uint32_t>(bytes + extra.size())) +
           good.substr(end + 16);
  };
  const auto field = [](uint16_t id, uint16_t claimed, const std::string& content) { return raw(id) + raw(claimed) + content; };
  const uint64_t offset = good.rfind("PK\3\4");
  const std::string sizes = raw<uint64_t>(24) + raw<uint64_t>(24), padding = field(0x4246, 2, "ZZ");
  read_tensor_file(write_bytes(dir / "x.pt", with_extra(padding)));
  read_tensor_file(write_bytes(dir / "x.pt", with_extra(padding + field(1, 24, sizes + raw(offset)), true)));
  refuse(with_extra(padding, true), "zip64 field is missing");
  refuse(with_extra(field(0x4246, 3, "ZZ")), "an extra field reaches outside its entry");
  refuse(with_extra(field(1, 24, sizes + raw(offset)).substr(0, 27), true), "an extra field reaches outside its entry");
  refuse(with_extra(field(1, 23, sizes + raw(offset)), true), "zip64 field is too short");
  refuse(with_extra(field(1, 24, sizes + raw(offset - 1)), true), "no header at its place");
  refuse(with_extra(field(1, 24, raw<uint64_t>(24) + raw<uint64_t>(25) + raw(offset)), true), "two sizes");

  // Entries overlap.
  auto overlapping = good;
  std::memcpy(overlapping.data() + central + 42, good.data() + first_central + 42, 4);
  refuse(overlapping, "");
  auto repeated = zip({{"a/data.pkl", sound}, {"a/data/0", data}, {"b", std::string(5000, 'b')}, {"c", ""}});
  const auto of_b = repeated.find("PK\1\2", repeated.find("PK\1\2", repeated.find("PK\1\2") + 1) + 1), of_c = repeated.rfind("PK\1\2");
  read_tensor_file(write_bytes(dir / "x.pt", repeated));
  repeated.replace(of_c + 16, 12, repeated.substr(of_b + 16, 12));  // CRC-32 and sizes
  repeated.replace(of_c + 42, 4, repeated.substr(of_b + 42, 4));
  refuse(repeated, "the entries together are larger than the file");

  // The limit is for the sum of the sizes that all entries claim, whether they are read or not.
  const auto claim = [](const char* name) { return ZipEntry{name, "1234", 8, 40 << 20, true}; };
  read_tensor_file(write_bytes(dir / "x.pt", zip({{"a/data.pkl", sound}, {"a/data/0", data}, claim("b")})));
  refuse(zip({{"a/data.pkl", sound}, {"a/data/0", data}, claim("b"), claim("c")}), "unpack to far more");
}

TEST_CASE("every beginning of a sound file, and every flipped byte") {
  const TempDir dir;
  save_pt(dir / "good.pt", ramp({2, 3}));
  save_npy(dir / "good.npy", ramp({2, 3}));
  const auto pt = read_file(dir / "good.pt", 10'000), npy = read_file(dir / "good.npy", 10'000);
  const auto small = torch_archive(pickle(TensorClaim{}.ops()));
  for (const auto* content : {&pt, &npy, &small}) {
    for (size_t length = 0; length < content->size(); ++length) {
      CAPTURE(length);
      const auto path = write_bytes(dir / "x", content->substr(0, length));
      CHECK(error_of([&] { read_tensor_file(path); }).kind() == ErrorKind::Data);
      if (content != &npy) CHECK(error_of([&] { load_pth(path); }).kind() == ErrorKind::Checkpoint);
    }
    // Flips bytes. One flipped byte gives an Error of this kind or a tensor, and so do several changed bytes in a pickle with a valid
    // checksum.
    std::mt19937 random(5);
    const auto try_one = [&](const std::string& text) {
      const auto path = write_bytes(dir / "x", text);
      try {
        read_tensor_file(path);
      } catch (const Error& e) {
        CHECK(e.kind() == ErrorKind::Data);
      }
    };
    for (size_t at = 0; at < content->size(); ++at) {
      auto text = *content;
      text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
      try_one(text);
    }
    for (int i = 0; i < 2000 && content == &small; ++i) {
      auto pickled = pickle(TensorClaim{}.ops());
      for (int k = 0; k <= i % 3; ++k) pickled[random() % pickled.size()] = static_cast<char>(random());
      try_one(torch_archive(pickled));
    }
  }
}

TEST_CASE(".npy files with false claims") {
  const TempDir dir;
  const std::string four(4, '\0');
  const std::vector<std::pair<std::string, const char*>> rows = {
      {npy_bytes(npy_header("<f4", "(9223372036854775807,)"), four), "more than any memory"},
      {npy_bytes(npy_header("<f4", "(9223372036854775808,)"), four), "invalid shape"},
      {npy_bytes(npy_header("<f4", "(4294967296, 4294967296)"), four), "more than any memory"},
      {npy_bytes(npy_header("<f4", "(0, 4294967296, 4294967296)"), ""), "more than any memory"},
      {npy_bytes(npy_header("<f4", "(1000000000,)"), four), "the shape requires 4000000000"},
      {npy_bytes(npy_header("<f4", "(-1, -1)"), four), "invalid shape"},
      {npy_bytes(npy_header("<f4", "(1L,)"), four), "lacks ')'"},
      {npy_bytes(npy_header("<f4", "(0x1,)"), four), "lacks ')'"},
      {npy_bytes(npy_header("<f4", "((1,),)"), four), "invalid shape"},
      {npy_bytes(npy_header("<f4", "__import__('os').system('true')"), four), "lacks '('"},
      {npy_bytes(npy_header("<f4", "(" + std::string(200, '1') + ",)"), four), "invalid shape"},
      {npy_bytes(npy_header("<f4",
                            [] {
                              std::string shape = "(";
                              for (int i = 0; i < 65; ++i) shape += "1,";
                              return shape + ")";
                            }()),
                 four),
       "invalid shape"},
      {npy_bytes(npy_header("|O", "(1,)"),
                 "\x80\x02"
                 "cos\nsystem\n."),
       "objects are never read"},
      {npy_bytes(npy_header("<c8", "(1,)"), std::string(8, '\0')), "dtype '<c8'"},
      {npy_bytes(npy_header("<V2", "(2,)"), four), "dtype '<V2'"},
      {npy_bytes(npy_header("<f4444444444444444444444444", "(1,)"), four), "dtype"},
      {npy_bytes("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", four), "repeated"},
      {npy_bytes(std::string(5000, '{'), four), "header"},
      {"\x93NUMPY\1\0\xff\xff"s + four, ""},
      {"\x93NUMPY\2\0\xff\xff\xff\xff"s + four, "allowed: at most"},
      {"\x93NUMPY\0\0\4\0"s + four, "version 0"},
  };
  for (const auto& [content, part] : rows) {
    const auto path = write_bytes(dir / "x.npy", content);
    CAPTURE(std::string(part));
    for (const auto& e : {error_of([&] { load_npy(path); }), error_of([&] { TensorFile::open(path); })}) {
      CAPTURE(std::string(e.what()));
      CHECK(e.kind() == ErrorKind::Data);
      CHECK(has(e.what(), path.string()));
      CHECK(has(e.what(), part));
    }
  }
}

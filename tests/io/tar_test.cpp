// Archives of GNU tar in each of its formats, and hostile archives.
#include "testing.hpp"

#include "npu_train/io/tar.hpp"

#include <filesystem>
#include <map>
#include <random>

#include "io/archives.hpp"
#include "npu_train/core/process.hpp"
#include "only_if.hpp"
#include "tar_files.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

using Members = std::vector<std::pair<std::string, std::string>>;  // names and contents

/// Reads all members, and each of them once more from its `begin`.
Members members_of(const fs::path& path) {
  const ReadableFile file(path);
  Members out;
  uint64_t position = 0;
  while (const auto member = next_tar_member(file, position)) {
    out.emplace_back(member->name, file.read(member->offset, member->size));
    auto again = member->begin;
    const auto same = next_tar_member(file, again);
    REQUIRE(same.has_value());
    CHECK(same->name == member->name);
    CHECK(same->offset == member->offset);
    CHECK(again == position);
  }
  CHECK_FALSE(next_tar_member(file, position).has_value());
  return out;
}

struct TarFile {
  const TempDir dir{};
  Members members(const std::string& content) const { return members_of(write_bytes(dir / "a.tar", content)); }
  void refuses(const std::string& content, const std::string& part) const {
    const Error error = error_of([&] { members(content); });
    CAPTURE(part);
    CAPTURE(std::string(error.what()));
    CHECK(error.kind() == ErrorKind::Data);
    CHECK(has(error.what(), (dir / "a.tar").string() + ", offset "));
    CHECK(has(error.what(), part));
  }
};

std::string base_256(uint64_t size) {
  std::string out(12, '\0');
  out[0] = '\x80';
  for (size_t i = 0; i < 8; ++i) out[11 - i] = static_cast<char>(size >> (8 * i));
  return out;
}

}  // namespace

TEST_CASE("archives of GNU tar in each of its formats" * only_if(has_program("tar"), "there is no program tar")) {
  const TempDir dir;
  const std::string long_folder(60, 'f'), longer_folder(120, 'g'), longest(200, 'h');
  std::map<std::string, std::string> files = {{"a.jpg", std::string(1000, 'x')},
                                              {"b/empty.cls", ""},
                                              {"b/one block.txt", std::string(512, 'y')},
                                              {long_folder + "/" + long_folder + "/c.jpg", "prefix"}};
  for (const auto& [name, content] : files) {
    fs::create_directories((dir / "in" / name).parent_path());
    write_bytes(dir / "in" / name, content);
  }
  fs::create_symlink("a.jpg", dir / "in/link.jpg");
  fs::create_hard_link(dir / "in/a.jpg", dir / "in/other.jpg");
  for (const std::string format : {"v7", "oldgnu", "ustar", "gnu", "pax"}) {
    CAPTURE(format);
    auto expected = files;
    if (format == "v7") {
      expected.erase(long_folder + "/" + long_folder + "/c.jpg");
    } else if (format != "ustar") {
      const auto name = longer_folder + "/" + longest + "/d.jpg";
      expected[name] = "long";
      fs::create_directories((dir / "in" / name).parent_path());
      write_bytes(dir / "in" / name, "long");
    }
    const auto tar = dir / (format + ".tar");
    const auto in = dir / "in";
    std::vector<std::string> words = {"tar", "--format=" + format, "--sort=name", "-C", in.string(),
                                      "-cf", tar.string(),         "a.jpg",       "b",  "link.jpg"};
    if (format != "v7") words.push_back(long_folder);
    if (format != "v7" && format != "ustar") words.push_back(longer_folder);
    words.push_back("other.jpg");  // a hard link to a.jpg, without content
    const auto done = run_command(words);
    REQUIRE_MESSAGE(done.ok(), done.output);
    Members all(expected.begin(), expected.end()), found = members_of(tar);
    std::sort(found.begin(), found.end());
    CHECK(found == all);
  }
}

TEST_CASE("names and sizes of ustar, GNU and pax by hand") {
  const TarFile tar;
  CHECK(tar.members(tar_of({})).empty());
  CHECK(tar.members(tar_of({{.name = "a.jpg", .content = "1"},
                            {.name = "folder/", .type = '5'},
                            {.name = "old/", .type = '\0'},
                            {.name = "link", .type = '2'},
                            {.name = "volume", .content = "ignored", .type = 'V'},
                            {.name = "b", .type = '7'}})) == Members{{"a.jpg", "1"}, {"b", ""}});
  CHECK(tar.members(tar_of({{.name = "c.jpg", .content = "1", .prefix = "a/b"}})) == Members{{"a/b/c.jpg", "1"}});
  // In the old GNU format, the bytes of the prefix field are not a prefix.
  CHECK(tar.members(tar_of({{.name = "c.jpg", .prefix = "a/b", .magic = std::string("ustar  ")}})) == Members{{"c.jpg", ""}});
  CHECK(tar.members(tar_of({{.name = "././@LongLink", .content = std::string(300, 'n') + '\0', .type = 'L'},
                            {.name = "cut", .content = "x"},
                            {.name = "next"}})) == Members{{std::string(300, 'n'), "x"}, {"next", ""}});
  const auto pax = pax_record("mtime", "1.5") + pax_record("path", "p/q.jpg") + pax_record("size", "3");
  for (const char type : {'x', 'X'})
    CHECK(tar.members(tar_of(
              {{.name = "x", .content = pax, .type = type}, {.name = "cut", .content = "abc", .size = octal(0, 11)}, {.name = "next"}})) ==
          Members{{"p/q.jpg", "abc"}, {"next", ""}});
  CHECK(tar.members(tar_of({{.name = "g", .content = pax_record("comment", "x"), .type = 'g'}, {.name = "a"}})) == Members{{"a", ""}});
  CHECK(tar.members(tar_of({{.name = "a", .content = "abc", .size = base_256(3)}})) == Members{{"a", "abc"}});
  CHECK(tar.members(tar_of({{.name = "a", .content = "abc", .size = std::string("         3 ")}})) == Members{{"a", "abc"}});
  // The reader returns names only as texts, so it accepts those that lead out of a folder.
  CHECK(tar.members(tar_of({{.name = "../../etc/passwd"}, {.name = "/etc/passwd"}})).size() == 2);
}

TEST_CASE("what is no archive, is truncated or makes false claims is refused with its offset") {
  const TarFile tar;
  const auto good = tar_of({{.name = "a.jpg", .content = std::string(700, 'x')}, {.name = "b.jpg", .content = "y"}});
  tar.refuses("", "it is truncated");
  tar.refuses(std::string(511, '\0'), "it is truncated");
  tar.refuses(std::string(2000, 'x'), "not a tar archive");
  tar.refuses("\x1f\x8b" + std::string(2000, 'x'), "gunzip");
  for (const size_t length : {100u, 600u, 1536u, 1600u, 2050u})
    tar.refuses(good.substr(0, length), length < 512 ? "truncated" : length == 600 ? "claims 700" : "");
  tar.refuses(good.substr(0, good.size() - 1024), "offset 2560: ends without the block of zeros");
  CHECK(tar.members(good.substr(0, good.size() - 512)).size() == 2);  // one block of zeros suffices
  tar.refuses(good + good, "join archives with tar --concatenate");
  tar.refuses(good + "x", "more bytes");
  auto damaged = good;
  damaged[1536 + 3] = 'z';
  tar.refuses(damaged, "offset 1536: no header of a member");
  for (const auto& size : {base_256(UINT64_MAX), base_256(uint64_t{1} << 62), octal(01777777, 11)})
    tar.refuses(tar_of({{.name = "a", .content = "abc", .size = size}}), "");
  tar.refuses(tar_of({{.name = "a", .size = std::string(12, '\xff')}}), "the size of a member is not a number");  // negative
  tar.refuses(tar_of({{.name = "a", .size = std::string("0000000000x")}}), "the size of a member is not a number");
  tar.refuses(tar_of({{.name = "a", .type = 'S'}}), "sparse");
  tar.refuses(tar_of({{.name = "a", .type = 'M'}}), "sparse");
  tar.refuses(tar_of({{.name = "L", .content = std::string(70'000, 'n'), .type = 'L'}, {.name = "a"}}), "allowed: at most 65536");
  tar.refuses(tar_of({{.name = "x", .content = std::string(2 << 20, 'n'), .type = 'x'}, {.name = "a"}}), "allowed: at most 1048576");
  tar.refuses(tar_of({{.name = "L", .content = "name", .type = 'L'}}), "between the headers");
  const auto pax = [&](const std::string& records) { return tar_of({{.name = "x", .content = records, .type = 'x'}, {.name = "a"}}); };
  for (const char* records :
       {"5", "x path=a\n", "99 path=a\n", "0 path=a\n", "3 =\n", "10 path=abc", "99999999999999999999999 a=b\n", "-5 a=b\n"})
    tar.refuses(pax(records), "wrong length");
  tar.refuses(pax("5 ab\n"), "without '='");
  for (const size_t length : {size_t{0}, size_t{70'000}})
    tar.refuses(pax(pax_record("path", std::string(length, 'n'))), "allowed: 1 to 65536");
  for (const char* size : {"", "x", "-1", "1e3", "99999999999999999999999"})
    tar.refuses(pax(pax_record("size", size)), "size is not a number");
  tar.refuses(pax(pax_record("size", "18446744073709551615")), "claims 18446744073709551615 bytes");
  tar.refuses(pax(pax_record("GNU.sparse.major", "1")), "sparse");
  tar.refuses(tar_of({{.name = "g", .content = pax_record("path", "x"), .type = 'g'}, {.name = "a"}}), "global");
}

TEST_CASE("every beginning of an archive is refused, and a changed byte gives members or an error") {
  const TarFile tar;
  const auto good =
      tar_of({{.name = "x", .content = pax_record("path", "p.jpg"), .type = 'x'}, {.name = "a", .content = "abc"}, {.name = "b"}});
  const auto body = good.size() - 1024;
  for (size_t length = 0; length < body + 512; length += 7) tar.refuses(good.substr(0, length), "");
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    auto changed = good;
    const size_t block = random() % (body / 512) * 512;
    for (int k = 0; k <= i % 3; ++k) changed[block + random() % 512] = static_cast<char>(random());
    if (i % 2 == 0) changed.replace(block, 512, with_checksum(changed.substr(block, 512)));  // so that the checksum does not refuse it
    try {
      CHECK(tar.members(changed).size() <= good.size() / 512);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::Data);
    }
  }
}

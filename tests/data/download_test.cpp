#include "testing.hpp"

#include "npu_train/data/download.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "environment_variable.hpp"
#include "images.hpp"
#include "only_if.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Makes an archive with FOLDER/test.bin and FOLDER/train.bin, with the system's tar.
Archive make_archive(const TempDir& dir) {
  const auto folder = dir / "source/cifar-small";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "train.bin") << "training";
  std::ofstream(folder / "test.bin") << "test";
  const auto archive = (dir / "small.tar.gz").string();
  const std::string command = "tar -czf '" + archive + "' -C '" + (dir / "source").string() + "' cifar-small";
  REQUIRE(std::system(command.c_str()) == 0);
  return {"file://" + archive, md5_of_file(archive), "cifar-small"};
}

size_t entries(const std::filesystem::path& dir) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(dir), std::filesystem::directory_iterator()));
}

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> out;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

constexpr const char* kNoCurl = "there is no program curl";

}  // namespace

TEST_CASE("MD5 of the examples of RFC 1321") {
  const TempDir dir;
  const auto sum = [&](const std::string& text) {
    write_bytes((dir / "f").string(), {text.begin(), text.end()});
    return md5_of_file((dir / "f").string());
  };
  CHECK(sum("") == "d41d8cd98f00b204e9800998ecf8427e");
  CHECK(sum("abc") == "900150983cd24fb0d6963f7d28e17f72");
  CHECK(sum("12345678901234567890123456789012345678901234567890123456789012345678901234567890") == "57edf4a22be3c955ac49da2e2107b67a");
  CHECK(sum(std::string(3'000'000, 'x')).size() == 32);
}

TEST_CASE("an archive is stored completely in its folder; nothing else is left" * only_if(has_program("curl"), kNoCurl)) {
  const TempDir dir;
  const Archive archive = make_archive(dir);
  const auto root = dir / "data/here";
  download_archive(archive, root.string());
  CHECK(std::filesystem::file_size(root / "train.bin") == 8);
  CHECK(entries(root) == 2);
  CHECK(entries(dir / "data") == 1);
}

TEST_CASE("a wrong checksum, a missing address and a folder in use leave nothing behind" * only_if(has_program("curl"), kNoCurl)) {
  const TempDir dir;
  const Archive archive = make_archive(dir);
  const auto root = dir / "data/here";
  const Error wrong = error_of([&] { download_archive({archive.url, std::string(32, '0'), archive.folder}, root.string()); });
  CHECK(wrong.kind() == ErrorKind::Data);
  CHECK(std::string(wrong.what()).find(archive.md5) != std::string::npos);
  const Error missing = error_of([&] { download_archive({archive.url + ".no", archive.md5, archive.folder}, root.string()); });
  CHECK(missing.kind() == ErrorKind::Data);
  CHECK(std::string(missing.what()).find("generated") != std::string::npos);
  const Error other = error_of([&] { download_archive({archive.url, archive.md5, "other-folder"}, root.string()); });
  CHECK(other.kind() == ErrorKind::Data);
  CHECK(!std::filesystem::exists(root));
  CHECK(entries(dir / "data") == 0);
  CHECK(error_of([&] { download_archive(archive, (dir / "source").string()); }).kind() == ErrorKind::Data);
}

TEST_CASE("curl follows https alone, within limits and without the user's settings") {
  const TempDir dir;
  // Replaces curl by a program that records its arguments, and writes an output of the size that the test sets.
  const auto programs = dir / "bin", arguments = dir / "arguments";
  std::filesystem::create_directories(programs);
  std::ofstream(programs / "curl") << "#!/bin/sh\nprintf '%s\\n' \"$@\" > '" << arguments.string()
                                   << "'\nwhile [ $# -gt 0 ]; do [ \"$1\" = --output ] && out=$2; shift; done\n"
                                      "exec dd if=/dev/zero of=\"$out\" bs=1 count=1 seek=\"$SIZE\" status=none\n";
  std::filesystem::permissions(programs / "curl", std::filesystem::perms::owner_all);
  const EnvironmentVariable path("PATH", programs.string() + ":" + std::getenv("PATH"));
  const Archive archive{"https://example.org/a.tar.gz", std::string(32, '0'), "folder"};
  const auto fetch = [&](const std::string& size) {
    const EnvironmentVariable bytes("SIZE", size);
    return std::string(error_of([&] { download_archive(archive, (dir / "data").string()); }).what());
  };
  CHECK(has(fetch("1000"), "MD5"));
  const auto given = lines_of(arguments);
  REQUIRE(given.size() > 4);
  CHECK(given[0] == "-q");  // must be first: elsewhere curl ignores it
  const auto value = [&](const char* option) {
    const auto found = std::find(given.begin(), given.end(), option);
    return found == given.end() || found + 1 == given.end() ? "" : *(found + 1);
  };
  CHECK(value("--proto") == "=https");
  CHECK(value("--proto-redir") == "=https");
  CHECK(value("--max-redirs") == "5");
  CHECK(value("--max-filesize") == "2147483648");
  CHECK(given.back() == archive.url);
  CHECK(given[given.size() - 2] == "--");
  // Cuts off an output that grows beyond the limit, although its length was not announced.
  CHECK(has(fetch("2147483648"), "cannot be downloaded"));
  CHECK_FALSE(std::filesystem::exists(dir / "data"));
  for (const char* url : {"http://example.org/a", "ftp://example.org/a", "-o/tmp/x", "HTTPS.example.org"})
    CHECK(has(error_of([&] {
                download_archive({url, archive.md5, "folder"}, (dir / "data").string());
              }).what(),
              "allowed: https:// and file://"));
}

TEST_CASE("the user's .curlrc has no say" * only_if(has_program("curl"), kNoCurl)) {
  const TempDir dir;
  const Archive archive = make_archive(dir);
  std::ofstream(dir / ".curlrc") << "output = \"" << (dir / "elsewhere").string() << "\"\nproto = \"=http\"\n";
  const EnvironmentVariable home("HOME", dir.path().string()), curl_home("CURL_HOME", dir.path().string());
  download_archive(archive, (dir / "data").string());
  CHECK(std::filesystem::exists(dir / "data/train.bin"));
  CHECK_FALSE(std::filesystem::exists(dir / "elsewhere"));
}

TEST_CASE("existing files are not downloaded again") {
  const TempDir dir;
  for (const char* name : {"train.bin", "test.bin"}) write_bytes((dir / name).string(), {1});
  download_cifar(CifarKind::Cifar100, dir.path().string());
  CHECK(entries(dir.path()) == 2);
  CHECK(cifar_archive(CifarKind::Cifar10).md5 == "c32a1d4ab5d03f1284b67883e8d87530");
}

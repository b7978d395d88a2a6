#include "testing.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>

#include "npu_train/data/datasets.hpp"
#include "npu_train/data/tokens.hpp"
#include "token_ids.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

template <class Token>
std::string bytes_of(const std::vector<Token>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Token)};
}

template <class Token>
std::vector<Token> counting(int64_t count, Token first = 0) {
  std::vector<Token> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<Token>(first + i));
  return out;
}

std::string header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> out(256);
  out[0] = magic, out[1] = version, out[2] = count;
  return bytes_of(out);
}

struct Folder {
  TempDir dir;
  std::string write(const std::string& name, const std::string& content) const {
    const auto path = (std::filesystem::path(dir.path()) / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
};

DatasetPair open(ConfigNode options) {
  return builtin_datasets().make({.name = "tokens", .options = std::move(options), .mark = {}}, "data", builtin_transforms());
}

template <class Fn>
void check_error(const Fn& run, ErrorKind kind, const std::string& words) {
  const auto error = error_of(run);
  CHECK(((error.kind() == kind)));
  CHECK_MESSAGE(std::string(error.what()).find(words) != std::string::npos, error.what());
}

}  // namespace

TEST_CASE("every layout gives the same tokens") {
  const Folder folder;
  const auto narrow = bytes_of(counting<uint16_t>(10, 65530)), wide = bytes_of(counting<uint32_t>(10, 65530));
  const auto large = bytes_of(std::vector<uint32_t>{0, 128000, 1});
  std::vector<int64_t> out(3);
  for (const auto& [name, content, dtype] : {std::tuple{"nanogpt.bin", narrow, "uint16"}, std::tuple{"raw32.bin", wide, "uint32"},
                                             std::tuple{"gpt2.bin", header(20240520, 1, 10) + narrow, "uint32"},
                                             std::tuple{"llama3.bin", header(20240801, 7, 10) + wide, "uint16"}}) {
    const TokenFile file(folder.write(name, content), dtype);
    CHECK(file.size() == 10);
    file.read(2, 3, out.data());
    CHECK(out == std::vector<int64_t>{65532, 65533, 65534});
  }
  TokenFile(folder.write("large.bin", large), "uint32").read(0, 3, out.data());
  CHECK(out == std::vector<int64_t>{0, 128000, 1});
}

TEST_CASE("written tokens are read again, in the smallest layout that holds them") {
  const Folder folder;
  const auto path = (folder.dir.path() / "tokens.bin").string();
  for (const auto& tokens : {std::vector<int64_t>{0, 1, 65535}, std::vector<int64_t>{65536, 0, 4294967295}, std::vector<int64_t>{}}) {
    save_tokens(path, tokens);
    CHECK(std::filesystem::file_size(path) == 1024 + tokens.size() * (tokens.empty() || tokens[0] == 0 ? 2 : 4));
    const TokenFile file(path);
    REQUIRE(file.size() == static_cast<int64_t>(tokens.size()));
    std::vector<int64_t> out(tokens.size());
    file.read(0, file.size(), out.data());
    CHECK(out == tokens);
  }
  check_error([&] { save_tokens(path, {-1}); }, ErrorKind::Usage, "below 0");
  check_error([&] { save_tokens(path, {int64_t{1} << 32}); }, ErrorKind::Usage, "above 2^32 - 1");
  CHECK(TokenFile(path).size() == 0);
}

TEST_CASE("samples are consecutive, with the next token as target, and do not span files") {
  const Folder folder;
  folder.write("train_1.bin", bytes_of(counting<uint16_t>(10, 100)));
  folder.write("train_0.bin", bytes_of(counting<uint16_t>(9)));
  folder.write("notes.txt", "not tokens");
  for (const std::string pattern : {"", "/train_*.bin"}) {
    const auto data = open({{"train", folder.dir.path().string() + pattern}, {"context", 4}}).train;
    REQUIRE(data->size() == 4);  // (9 - 1) / 4 and (10 - 1) / 4
    const auto input = [&](int64_t i) { return ids_of(data->get(i).fields[0].second); };
    CHECK(input(0) == std::vector<int64_t>{0, 1, 2, 3});
    CHECK(input(1) == std::vector<int64_t>{4, 5, 6, 7});
    CHECK(ids_of(data->get(1).fields[1].second) == std::vector<int64_t>{5, 6, 7, 8});
    CHECK(input(2) == std::vector<int64_t>{100, 101, 102, 103});
    CHECK(input(3) == std::vector<int64_t>{104, 105, 106, 107});
    CHECK(data->where(3).ends_with("train_1.bin, tokens 4 to 8"));
  }
}

TEST_CASE("validation: the last samples, or files") {
  const Folder folder;
  const auto train = folder.write("train.bin", bytes_of(counting<uint16_t>(41))),
             val = folder.write("val.bin", bytes_of(counting<uint16_t>(9)));
  const auto split = open({{"train", train}, {"context", 4}, {"val_fraction", 0.25}});
  CHECK(split.train->size() == 8);
  REQUIRE(split.val->size() == 2);
  CHECK(ids_of(split.val->get(0).fields[0].second) == std::vector<int64_t>{32, 33, 34, 35});
  CHECK(split.val->where(0).ends_with("tokens 32 to 36"));
  CHECK(open({{"train", train}, {"val", val}, {"context", 4}}).val->size() == 2);
  CHECK(open({{"train", train}, {"context", 4}}).val == nullptr);
}

TEST_CASE("a file of a pair whose other file was not replaced with it is refused, by tokens and by documents") {
  const Folder folder;
  const auto path = [&](const char* name) { return (folder.dir.path() / name).string(); };
  const auto pair = [&](const std::string& train, const std::string& val) {
    save_tokens({{path("train.bin"), train}, {path("val.bin"), val}});
  };
  const auto read = [&](const char* name) { return std::pair(path(name), read_file(path(name), 1 << 20)); };
  const auto put = [](const std::pair<std::string, std::string>& file) { std::ofstream(file.first, std::ios::binary) << file.second; };
  const auto refused = [&] {
    for (const auto& [name, context] : {std::pair("tokens", 4), std::pair("documents", 16)}) {
      const ConfigNode options{{"train", path("train.bin")}, {"val", path("val.bin")}, {"context", context}};
      const auto both = [&, name = name] {
        builtin_datasets().make({.name = name, .options = options, .mark = {}}, "data", builtin_transforms());
      };
      check_error(both, ErrorKind::Data, "val.bin: was not written together with");
      check_error(both, ErrorKind::Data, "run npu_tool tokenize again");
    }
  };
  pair("abcdefgh", "ijklmnop");
  const auto earlier = read("val.bin");
  CHECK(open({{"train", path("train.bin")}, {"val", path("val.bin")}, {"context", 4}}).val->size() == 1);
  pair("abcdefghijkl", "mnop");  // the same text, divided at another place
  put(earlier);
  refused();
  pair("abcdefgh", "ijklmnop");
  CHECK(open({{"train", path("train.bin")}, {"val", path("val.bin")}, {"context", 4}}).val->size() == 1);
  save_tokens(path("val.bin"), "ijklmnop");  // as earlier versions wrote each of the two files
  refused();
  save_tokens(path("train.bin"), "abcdefgh");
  CHECK(open({{"train", path("train.bin")}, {"val", path("val.bin")}, {"context", 4}}).val->size() == 1);
}

TEST_CASE("invalid files and options are one error each") {
  const Folder folder;
  const auto ten = bytes_of(counting<uint16_t>(10));
  const auto train = folder.write("train.bin", ten);
  check_error([&] { TokenFile(folder.write("odd.bin", ten + "x")); }, ErrorKind::Data, "odd.bin: 21 bytes; tokens of uint16 have 2 bytes");
  check_error([&] { TokenFile(folder.write("short.bin", header(20240520, 1, 11) + ten)); }, ErrorKind::Data,
              "a header with 11 tokens requires 1046 bytes");
  check_error([&] { TokenFile(folder.write("huge.bin", header(20240520, 1, 2147483647) + ten)); }, ErrorKind::Data, "requires 4294968318");
  check_error([&] { TokenFile(folder.write("negative.bin", header(20240520, 1, -1))); }, ErrorKind::Data, "-1 tokens");
  check_error([&] { TokenFile(folder.write("version.bin", header(20240520, 2, 10) + ten)); }, ErrorKind::Data, "version 2");
  // Headers of other files of this family, and of other formats.
  for (const int32_t magic : {20240522, 20240326, 20240803, 20251231})
    check_error([&] { TokenFile(folder.write("magic.bin", header(magic, 3, 10) + ten)); }, ErrorKind::Data,
                "a file with a header (magic " + std::to_string(magic) + ", version 3)");
  check_error([&] { TokenFile(folder.write("a.bin", std::string("\x93NUMPY\x01\0v\0{'descr': '<u2'", 26))); }, ErrorKind::Data,
              "NumPy file");
  check_error([&] { TokenFile(folder.write("z.bin", std::string("PK\x03\x04\0\0\0\0\x01\0\0\0", 12))); }, ErrorKind::Data, "ZIP archive");
  check_error([&] { TokenFile(folder.write("i.bin", std::string("MMIDIDX\0\0\x01\0\0", 12))); }, ErrorKind::Data, "index of a Megatron");
  // Ids that only resemble a date.
  CHECK(TokenFile(folder.write("ids.bin", bytes_of(std::vector<uint16_t>{55449, 308, 50256, 1000, 0, 1}))).size() == 6);
  CHECK(TokenFile(folder.write("day.bin", bytes_of(std::vector<uint32_t>{20241301, 1, 10})), "uint32").size() == 3);
  check_error([&] { TokenFile(train, "int8"); }, ErrorKind::Usage, "allowed: uint16, uint32");
  check_error([&] { open({{"train", train}, {"context", 10}}); }, ErrorKind::Data, "10 tokens; a sample has context + 1 = 11");
  check_error([&] { open({{"train", folder.write("empty.bin", "")}}); }, ErrorKind::Data, "0 tokens");
  check_error([&] { open({{"train", folder.dir.path().string() + "/absent_*.bin"}}); }, ErrorKind::Data, "names no file");
  std::filesystem::create_directory(folder.dir.path() / "folder");
  check_error([&] { open({{"train", (folder.dir.path() / "folder").string()}}); }, ErrorKind::Data, "names no file");
  check_error([&] { open({{"context", 4}}); }, ErrorKind::Usage, "no files are named");
  check_error([&] { open({{"train", train}, {"val", train}, {"context", 4}, {"val_fraction", 0.1}}); }, ErrorKind::Usage, "one of them");
  check_error([&] { open({{"train", train}, {"context", 4}, {"mixup_alpha", 0.1}}); }, ErrorKind::Usage, "are for images");
  const auto data = open({{"train", train}, {"context", 4}, {"vocab_size", 8}}).train;
  CHECK(data->get(0).index == 0);
  check_error([&] { data->get(1); }, ErrorKind::Data, "train.bin: token 8 is 8; allowed: 0 to 7");
}

TEST_CASE("every text is its bytes, and comes back from them") {
  CHECK(byte_tokens("a\xc3\xa9\n") == std::vector<int64_t>{97, 0xc3, 0xa9, 10});
  std::string all;
  for (int byte = 1; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(text_of_bytes(byte_tokens(all)) == all);
  CHECK(text_of_bytes({104, kEndOfText, 105}) == "hi");
}

TEST_CASE("a document ends with the end of text; an empty one has no tokens") {
  CHECK(document_tokens("hi", "a.txt") == std::vector<int64_t>{104, 105, kEndOfText});
  CHECK(document_tokens("", "a.txt").empty());
  CHECK(document_bytes("h\xc3", "a.txt") == std::string("h\xc3\0", 3));
}

TEST_CASE("what is not text is an error") {
  const auto binary = error_of([] { document_tokens(std::string("ab\0c", 4), "a.bin"); });
  CHECK(((binary.kind() == ErrorKind::Data)));
  CHECK_MESSAGE(std::string(binary.what()).find("a.bin: byte 2 is 0") != std::string::npos, binary.what());
  const auto token = error_of([] { text_of_bytes({7, 256}); });
  CHECK(((token.kind() == ErrorKind::Data)));
  CHECK_MESSAGE(std::string(token.what()).find("token 1 is 256; allowed: 0 to 255") != std::string::npos, token.what());
}

#include "testing.hpp"

#include "npu_train/io/pickle.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "io/archives.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;
using namespace std::string_literals;

namespace {

fs::path fixture(const std::string& name) { return fs::path(NPU_TRAIN_SOURCE_DIR) / "tests/io/fixtures" / name; }

std::map<std::string, at::Tensor> by_name(const PthFile& file) { return {file.tensors.begin(), file.tensors.end()}; }

// Returns the pickle of {"w": a tensor over a FloatStorage of 24 bytes}. The arguments describe the tensor.
std::string one_tensor(const std::string& offset, const std::string& size, const std::string& stride,
                       const std::string& storage_size = "K\x06", const std::string& storage = "torch\nFloatStorage\n",
                       const std::string& key = "0") {
  return pickle("}" + text_op("w") + TensorClaim{offset, size, stride, storage_size, storage, key}.ops() + "s");
}

class Archive {
 public:
  fs::path with(const std::string& pickled) const { return write(torch_archive(pickled)); }
  fs::path write(const std::string& content) const { return write_bytes(dir_ / "x.pth", content); }

 private:
  TempDir dir_;
};

std::string refused(const fs::path& path) {
  const auto e = error_of([&] { load_pth(path); });
  CHECK(e.kind() == ErrorKind::Checkpoint);
  return e.what();
}

}  // namespace

TEST_CASE("a state_dict, however it was packed") {
  for (const char* name : {"state_dict.pth", "protocol4.pth", "deflated.pth", "zip64.pth", "old_format.pth"}) {
    CAPTURE(name);
    const auto file = load_pth(fixture(name));
    REQUIRE(file.tensors.size() == 3);
    CHECK(file.tensors[0].first == "conv.weight");
    CHECK(at::equal(file.tensors[0].second, ramp({2, 3, 2, 2})));
    CHECK(at::equal(file.tensors[1].second, ramp({2})));
    CHECK((file.tensors[2].second.scalar_type() == at::kLong));
    CHECK(file.tensors[2].second.dim() == 0);
    CHECK(file.tensors[2].second.item<int64_t>() == 7);
    CHECK(file.skipped.empty());
  }
}

TEST_CASE("a module's state_dict with its _metadata") {
  const auto tensors = by_name(load_pth(fixture("module.pth")));
  CHECK(tensors.size() == 7);
  CHECK(at::equal(tensors.at("0.weight"), ramp({2, 3})));
  CHECK(at::equal(tensors.at("1.running_var"), ramp({2})));
}

TEST_CASE("every dtype") {
  const auto tensors = by_name(load_pth(fixture("dtypes.pth")));
  CHECK(tensors.size() == 10);
  for (const auto& entry : std::map<std::string, at::ScalarType>{{"float64", at::kDouble},
                                                                 {"float32", at::kFloat},
                                                                 {"float16", at::kHalf},
                                                                 {"bfloat16", at::kBFloat16},
                                                                 {"int64", at::kLong},
                                                                 {"int32", at::kInt},
                                                                 {"int16", at::kShort},
                                                                 {"int8", at::kChar},
                                                                 {"uint8", at::kByte}}) {
    const auto& name = entry.first;
    const auto type = entry.second;
    CAPTURE(name);
    CHECK((tensors.at(name).scalar_type() == type));
    CHECK(at::equal(tensors.at(name), ramp({2, 3}, type)));
  }
  CHECK(tensors.at("bool")[0].item<bool>());
  CHECK_FALSE(tensors.at("bool")[1].item<bool>());
}

TEST_CASE("views keep strides, offsets and what they share") {
  const auto tensors = by_name(load_pth(fixture("views.pth")));
  const auto base = ramp({4, 6});
  CHECK(at::equal(tensors.at("row"), base[1]));
  CHECK(at::equal(tensors.at("column"), base.select(1, 2)));
  CHECK(at::equal(tensors.at("transposed"), base.t()));
  CHECK(tensors.at("empty").sizes() == at::IntArrayRef({0, 6}));
  CHECK(at::equal(tensors.at("channels_last"), ramp({1, 2, 3, 3})));
  tensors.at("base")[1][2] = 99;
  CHECK(tensors.at("row")[2].item<float>() == 99);
}

TEST_CASE("a complete checkpoint: nested names, the rest is listed") {
  const auto file = load_pth(fixture("checkpoint.pth"));
  const auto tensors = by_name(file);
  CHECK(tensors.size() == 2);
  CHECK(at::equal(tensors.at("state_dict.w"), ramp({3})));
  CHECK(tensors.count("optimizer.state.0.exp_avg") == 1);
  const std::vector<std::string> expected = {"epoch",
                                             "lr",
                                             "name",
                                             "none",
                                             "flag",
                                             "optimizer.param_groups.0.params.0",
                                             "optimizer.param_groups.0.betas.0",
                                             "optimizer.param_groups.0.betas.1"};
  CHECK(file.skipped == expected);
}

TEST_CASE("plain data of other classes around the tensors") {
  for (const char* name : {"training2.ckpt", "training4.ckpt"}) {
    CAPTURE(name);
    const auto file = load_pth(fixture(name));
    const auto tensors = by_name(file);
    std::vector<std::string> names;
    for (const auto& [tensor, value] : tensors) names.push_back(tensor);
    CHECK(names == std::vector<std::string>{"args.inner.weight", "hyper_parameters.scale", "state_dict.bias", "state_dict.weight"});
    CHECK(at::equal(tensors.at("state_dict.weight"), ramp({2, 3})));
    const auto skipped = [&](const char* wanted) {
      return std::find(file.skipped.begin(), file.skipped.end(), wanted) != file.skipped.end();
    };
    for (const char* wanted : {"epoch", "args.model", "args.data_dir", "args.device", "args.dtype", "args.shape.1", "metric", "history",
                               "counts.seen.0", "counter.a", "queue.1", "hyper_parameters.lr", "path", "big", "time", "types.2"}) {
      CAPTURE(wanted);
      CHECK(skipped(wanted));
    }
  }
}

TEST_CASE("nothing is ever executed") {
  fs::remove("/tmp/npu_train_was_here");
  CHECK(has(refused(fixture("evil_system.pth")), "posix.system"));
  CHECK_FALSE(fs::exists("/tmp/npu_train_was_here"));
  CHECK(has(refused(fixture("evil_eval.pth")), "__builtin__.eval"));
  CHECK(has(refused(fixture("whole_model.pth")), "torch.nn.modules.linear.Linear"));
  CHECK(has(refused(fixture("whole_model.pth")), "torch.save(model.state_dict(), path)"));
  CHECK(has(refused(fixture("torchscript.pth")), "TorchScript"));
}

TEST_CASE("instructions and calls that are not on the list") {
  const Archive archive;
  const std::string tensor = "ctorch._utils\n_rebuild_tensor_v2\n";
  struct Row {
    std::string pickle;
    const char* part;
  };
  const std::vector<Row> rows = {
      {"\x80\x02(S'x'\nios\nsystem\n.", "0x53"},  // text of protocol 0
      {"\x80\x02(ios\nsystem\n.", "0x69"},        // INST
      {"\x80\x02(o.", "0x6f"},                    // OBJ
      {"\x80\x02\x82\x01.", "0x82"},              // EXT1
      {"\x80\x02)\x81.", "from an empty stack"},  // NEWOBJ
      {"\x80\x02Pid\n.", "0x50"},                 // PERSID
      {"\x80\x04\x8c\x05posix\x8c\x06system\x93.", "posix.system"},
      {"\x80\x02"
       "ctorch\nload\n.",
       "torch.load"},
      {"\x80\x02"
       "c__builtin__\ngetattr\n.",
       "getattr"},
      {"\x80\x02"
       "ctorch._utils\n_rebuild_tensor_v2.__globals__\n.",
       "__globals__"},
      {"\x80\x02"
       "ccollections\nOrderedDict\n(K\x01tR.",
       "OrderedDict with arguments"},
      {"\x80\x02"
       "ctorch\nFloatStorage\n)R.",
       "calls 'torch FloatStorage'"},
      {"\x80\x02"
       "ctorch\nFloatStorage\n}b.",
       "BUILD"},
      {"\x80\x02]}b.", "BUILD"},
      {"\x80\x02K\x01)R.", "not a function"},
      {"\x80\x02" + tensor + ")R.", "not described by storage"},
      {"\x80\x02K\x01Q.", "not a storage"},
      {"\x80\x01}.", "protocol 1"},
      {"\x80\x02.", "from an empty stack"},
      {"\x80\x02(.", "from an empty stack"},
      {"\x80\x02t.", "mark"},
      {"\x80\x02h\x05.", "memo"},
      {"\x80\x02]K\x01s.", "from an empty stack"},
      {"\x80\x02]K\x01K\x01s.", "not a dict"},
      {"\x80\x02}K\x01"
       "a.",
       "not a list"},
      {"\x80\x02}(K\x01u.", "without a value"},
      {"\x80\x02}", "is truncated"},
      {"\x80\x02X\xff\xff\xff\xff"
       "abc.",
       "is truncated"},
      {"\x80\x02"
       "ctorch",
       "is truncated"},
      {"", "is truncated"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.part);
    const auto message = refused(archive.with(row.pickle));
    CAPTURE(message);
    CHECK(has(message, row.part));
  }
}

TEST_CASE("names of files of torch.save") {
  for (const char* name : {"a.pth", "a.PT", "a.bin", "a.ckpt", "model_best.pth.tar", "a.PTH.TAR"}) CHECK(is_pth_name(name));
  for (const char* name : {"a.tar", "a.safetensors", "pth", "a.pth.gz", ""}) CHECK_FALSE(is_pth_name(name));
}

TEST_CASE("keys that are neither text nor integers name data, and no tensor") {
  const Archive archive;
  for (const char* key : {")", "N", "G\x3f\xf0\x01\x01\x01\x01\x01\x01"}) {
    const auto file = load_pth(archive.with("\x80\x02}" + std::string(key) + "K\x01s."));
    CHECK(file.tensors.empty());
    CHECK(file.skipped == std::vector<std::string>{"?"});
    const auto tensor = TensorClaim{.size = "K\x02\x85", .stride = "K\x01\x85"}.ops();
    CHECK(load_pth(archive.with(pickle("}K\x01" + tensor + "s"))).tensors.size() == 1);
    CHECK(has(refused(archive.with(pickle("}" + std::string(key) + tensor + "s"))), "neither text nor an integer"));
  }
}

TEST_CASE("tensors that reach outside their storage") {
  const Archive archive;
  const std::string two_three = "K\x02K\x03\x86", three_one = "K\x03K\x01\x86";
  CHECK(load_pth(archive.with(one_tensor("K\0"s, two_three, three_one))).tensors[0].second.numel() == 6);
  const auto big = [](int64_t value) { return std::string("\x8a\x08") + raw(value); };
  struct Row {
    std::string pickle;
    const char* part;
  };
  const std::vector<Row> rows = {
      {one_tensor("K\x01", two_three, three_one), "beyond its storage"},
      {one_tensor("K\0"s, two_three, "K\x04K\x01\x86"), "beyond its storage"},
      {one_tensor("K\0"s, "K\x02\x85", big(int64_t{1} << 62) + "\x85"), "beyond its storage"},
      {one_tensor("K\0"s, "(" + big(5) + big(5) + "t", "(" + big(INT64_MAX / 2) + big(INT64_MAX / 2) + "t"), "beyond its storage"},
      {one_tensor("K\x06", "K\x01\x85", "K\x01\x85"), "begins after the end"},
      {one_tensor(big(INT64_MAX), "K\x01\x85", "K\x01\x85"), "begins after the end"},
      {one_tensor("J\xff\xff\xff\xff", "K\x01\x85", "K\x01\x85"), "begins before"},
      {one_tensor("K\0"s, "K\x02\x85", "J\xff\xff\xff\xff\x85"), "negative stride"},
      {one_tensor("K\0"s, "J\xff\xff\xff\xff\x85", "K\x01\x85"), "impossible"},
      {one_tensor("K\0"s, big(int64_t{1} << 40) + "\x85", "K\0\x85"s), "more elements than its storage"},
      {one_tensor("K\0"s, big(int64_t{1} << 62) + big(8) + "\x86", "K\0K\0\x86"s), "impossible"},
      {one_tensor("K\0"s, "K\x02\x85", three_one), "1 sizes and 2 strides"},
      {one_tensor("K\0"s, two_three, three_one, "K\x07"), "24 bytes; its storage claims 7"},
      {one_tensor("K\0"s, two_three, three_one, big(int64_t{1} << 62)), "24 bytes; its storage claims"},
      {one_tensor("K\0"s, two_three, three_one, "J\xff\xff\xff\xff"), "after the end of its storage"},
      {one_tensor("K\0"s, two_three, three_one, "K\x06", "torch\nDoubleStorage\n"), "24 bytes; its storage claims"},
      {one_tensor("K\0"s, two_three, three_one, "K\x06", "torch\nQInt8Storage\n"), "torch.QInt8Storage"},
      {one_tensor("K\0"s, two_three, three_one, "K\x06", "torch\nFloatStorage\n", "../../etc/passwd"), "is missing from the archive"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.part);
    const auto message = refused(archive.with(row.pickle));
    CAPTURE(message);
    CHECK(has(message, row.part));
  }
}

TEST_CASE("tensors that share a storage describe it alike, and one without elements may have any strides") {
  const Archive archive;
  const auto two = [&](const TensorClaim& second) {
    TensorClaim first;
    first.size = "K\x01\x85", first.stride = "K\x01\x85";
    return archive.with(pickle("}(" + text_op("a") + first.ops() + text_op("b") + second.ops() + "u"));
  };
  CHECK(load_pth(two({})).tensors.size() == 2);
  CHECK(has(refused(two({.storage = "torch\nIntStorage\n"})), "the storage of 'b' has two different descriptions"));
  CHECK(has(refused(two({.size = "K\x01\x85", .stride = "K\x01\x85", .storage_size = "K\x05"})), "two different descriptions"));
  const auto empty = load_pth(archive.with(one_tensor("K\0"s, "K\0\x85"s, "J\xff\xff\xff\xff\x85")));
  CHECK(empty.tensors.at(0).second.sizes() == at::IntArrayRef({0}));
}

TEST_CASE("nested bombs, cycles and repeated names") {
  const Archive archive;
  // d0 = {}, d(n+1) = {a: d(n), b: d(n)}: a few hundred bytes make 2^60 leaves.
  std::string doubling = "\x80\x02}" + text_op("x") + "K\x01s";
  for (char i = 0; i < 60; ++i) doubling += std::string("q") + i + "0}(" + text_op("a") + "h" + i + text_op("b") + "h" + i + "u";
  CHECK(has(refused(archive.with(doubling + ".")), "more than 1000000 values"));
  CHECK(has(refused(archive.with("\x80\x02]q\x01h\x01"
                                 "a.")),
            "64 levels"));
  std::string deep = "\x80\x02";
  deep += std::string(100'000, ']') + std::string(99'999, 'a') + ".";
  CHECK(has(refused(archive.with(deep)), "64 levels"));
  CHECK(has(refused(archive.with("\x80\x02" + std::string(3'000'000, '}') + ".")), "2,000,000"));
  CHECK(has(refused(archive.with("\x80\x02}" + std::string(9'000'000, '2') + ".")), "pushes too many"));
  CHECK(has(refused(archive.with("\x80\x02" + std::string(3'000'000, '('))), "2,000,000"));
  auto twice = one_tensor("K\0"s, "K\x06\x85", "K\x01\x85");
  const auto body = twice.substr(3, twice.size() - 4);
  CHECK(has(refused(archive.with("\x80\x02}" + body + body + ".")), "two tensors have the name 'w'"));
}

TEST_CASE("archives with false claims") {
  const Archive archive;
  const std::string pickled = one_tensor("K\0"s, "K\x06\x85", "K\x01\x85");
  const std::vector<ZipEntry> entries = {{"a/data.pkl", pickled}, {"a/data/0", std::string(24, '\0')}};
  const auto good = zip(entries);
  CHECK(load_pth(archive.write(good)).tensors.size() == 1);
  CHECK(has(refused(archive.write(zip({{"a/other", "x"}}))), "without data.pkl"));
  CHECK(has(refused(archive.write(zip({entries[0], entries[1], entries[1]}))), "there twice"));
  CHECK(has(refused(archive.write(zip({entries[0], entries[1], {"a/byteorder", "big"}}))), "big-endian"));
  CHECK(has(refused(archive.write(good + "x")), "end of the zip archive is missing"));
  CHECK(has(refused(archive.write("")), "empty"));
  CHECK(has(refused(archive.write("just text")), "not a file of torch.save"));
  CHECK(has(refused(archive.write("\x80\x02}.")), "a pickle that torch.save did not write"));
  auto flipped = good;
  flipped[good.find(std::string(24, '\0')) + 3] = 1;
  CHECK(has(refused(archive.write(flipped)), "CRC-32"));
  // A deflated entry claims to unpack to gigabytes.
  auto bomb = good;
  const auto entry = bomb.rfind("PK\1\2");
  bomb[entry + 10] = 8;
  const uint32_t claimed = 4'000'000'000u;
  std::memcpy(bomb.data() + entry + 24, &claimed, 4);
  CHECK(has(refused(archive.write(bomb)), "unpack to far more"));
  for (size_t length = 0; length < good.size(); ++length) CHECK_THROWS_AS(load_pth(archive.write(good.substr(0, length))), Error);
}

TEST_CASE("a file of the format before PyTorch 1.6 whose storages are not those that its tensors claim") {
  const Archive archive;
  const auto good = read_file(fixture("old_format.pth"), 100'000);
  const auto refuses = [&](const std::string& content, const char* part) {
    const auto said = refused(archive.write(content));
    CHECK_MESSAGE(has(said, part), said);
  };
  // The storages are at the end, in an order of the file's own, each after its count: 24 numbers of 4 bytes, 2 numbers of 4 bytes, and one
  // number of 8 bytes.
  for (const size_t missing : {1, 30, 130}) refuses(good.substr(0, good.size() - missing), "storage");
  auto text = good;
  const auto last = text.size() - 16;  // the last position at which a storage's count can begin
  std::string count(8, '\0');
  count[0] = 24;
  const auto at = text.rfind(count);
  REQUIRE(at != std::string::npos);
  REQUIRE(at <= last);
  text[at] = 25;
  refuses(text, "has 25 elements, and its tensors claim 24");
  text[at] = 24, text[at + 7] = static_cast<char>(0x80);
  refuses(text, "elements, and its tensors claim 24");
  refuses(good.substr(0, 21), "truncated");
  refuses("\x80\x02}q\0."s, "a pickle that torch.save did not write");
}

TEST_CASE("an expanded tensor is read as such, up to a bound") {
  const Archive archive;
  const auto big = [](int64_t value) { return std::string("\x8a\x08") + raw(value); };
  std::string numbers;
  for (int i = 0; i < 6; ++i) numbers += raw(0.25f * static_cast<float>(i));
  const auto file = load_pth(archive.write(torch_archive(one_tensor("K\x01", "K\x04K\x03\x86", "K\0K\x01\x86"s), numbers)));
  CHECK((file.tensors[0].second.sizes() == at::IntArrayRef({4, 3})));
  CHECK(at::equal(file.tensors[0].second, ramp({6}).slice(0, 1, 4).expand({4, 3})));
  CHECK(load_pth(archive.with(one_tensor("K\0"s, big(int64_t{1} << 26) + "\x85", "K\0\x85"s))).tensors[0].second.numel() == 1 << 26);
  CHECK(has(refused(archive.with(one_tensor("K\0"s, big((int64_t{1} << 26) + 1) + "\x85", "K\0\x85"s))), "more elements than its storage"));
}

TEST_CASE("damaged files give an Error or tensors, nothing else") {
  const Archive archive;
  std::mt19937 random(2);
  int refused_ones = 0;
  for (const char* name : {"checkpoint.pth", "deflated.pth", "zip64.pth", "old_format.pth"}) {
    const auto good = read_file(fixture(name), 100'000);
    for (int i = 0; i < 1500; ++i) {
      auto text = good;
      for (int k = 0; k <= i % 3; ++k) text[random() % text.size()] = static_cast<char>(random());
      try {
        load_pth(archive.write(text));
      } catch (const Error&) {
        ++refused_ones;
      }
    }
  }
  CHECK(refused_ones > 1000);
  // Damages the pickle itself, because the archive's checksum hides most damage from the unpickler.
  const std::string pickled = one_tensor("K\0"s, "K\x02K\x03\x86", "K\x03K\x01\x86");
  for (int i = 0; i < 5000; ++i) {
    auto text = pickled;
    for (int k = 0; k <= i % 3; ++k) text[random() % text.size()] = static_cast<char>(random());
    try {
      load_pth(archive.with(text));
    } catch (const Error&) {
    }
  }
}

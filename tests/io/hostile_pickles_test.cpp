// Malicious pickles must give an Error of the right kind, execute nothing, and use little memory.
#include "testing.hpp"

#include <stdexcept>

#include "bounded.hpp"
#include "io/hostile.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using namespace std::string_literals;
namespace fs = std::filesystem;

TEST_CASE("pickles that would execute something") {
  const TempDir dir;
  const auto mark = (dir / "was here").string();
  const auto command = text_op("touch '" + mark + "'");
  const std::string tensor = TensorClaim{}.ops();
  struct Row {
    const char* name;
    std::string ops;
    const char* part;
  };
  const std::vector<Row> rows = {
      {"REDUCE of os.system", "cos\nsystem\n" + command + "\x85R", "os.system"},
      {"REDUCE of posix.system", "cposix\nsystem\n" + command + "\x85R", "posix.system"},
      {"REDUCE of nt.system", "cnt\nsystem\n" + command + "\x85R", "nt.system"},
      {"STACK_GLOBAL", "\x8c\x05posix\x8c\x06system\x93" + command + "\x85R", "posix.system"},
      {"builtins.eval", "cbuiltins\neval\n" + text_op("__import__('os').system('true')") + "\x85R", "builtins.eval"},
      {"builtins.exec", "cbuiltins\nexec\n" + command + "\x85R", "builtins.exec"},
      {"builtins.getattr", "cbuiltins\ngetattr\n(ctorch\nsave\n" + text_op("__globals__") + "tR", "builtins.getattr"},
      {"subprocess", "csubprocess\nPopen\n" + command + "\x85R", "subprocess.Popen"},
      {"runpy", "crunpy\n_run_code\n" + command + "\x85R", "runpy._run_code"},
      {"pickle in a pickle", "c_pickle\nloads\n" + command + "\x85R", "_pickle.loads"},
      {"torch.load", "ctorch\nload\n" + command + "\x85R", "torch.load"},
      {"torch.hub", "ctorch.hub\nload\n" + command + "\x85R", "torch.hub.load"},
      {"an attribute of a known function", "ctorch._utils\n_rebuild_tensor_v2.__globals__\n", "__globals__"},
      {"a name with line ends", "\x8c\x06os\nsys\x8c\x04tem\n\x93", "os?sys.tem?"},
      {"a module that begins as a known one", "ctorch._utils_\n_rebuild_tensor_v2\n", "torch._utils_._rebuild_tensor_v2"},
      {"INST", "(" + command + "ios\nsystem\n", "0x69"},
      {"OBJ", "(cos\nsystem\n" + command + "o", "os.system"},
      {"OBJ of a known class", "(ccollections\nOrderedDict\no", "0x6f"},
      {"NEWOBJ of a function", "ctorch._utils\n_rebuild_tensor_v2\n)\x81", "NEWOBJ"},
      {"NEWOBJ of a type", "c__builtin__\ndict\n)\x81", "NEWOBJ"},
      {"NEWOBJ of text", command + ")\x81", "NEWOBJ"},
      {"REDUCE of a type", "c__builtin__\ntype\n" + command + "\x85R", "__builtin__ type"},
      {"items of plain data that are a call", "ccollections\nCounter\n" + ("cos\nsystem\n" + command) + "\x85R\x85R", "os.system"},
      {"attributes of plain data that are a call", "cargparse\nNamespace\n)\x81}" + text_op("x") + "cos\nsystem\n" + command + "\x85Rsb",
       "os.system"},
      {"a factory for a defaultdict", "ccollections\ndefaultdict\ncos\nsystem\n\x85R", "os.system"},
      {"text for the items of plain data", "ccollections\nOrderedDict\n" + command + "\x85R", "other than its items"},
      {"another class of a known module", "cargparse\nArgumentParser\n)\x81", "argparse.ArgumentParser"},
      {"another class of pathlib", "cpathlib\nos\n", "pathlib.os"},
      {"another codec", "ccodecs\ndecode\n", "codecs.decode"},
      {"NEWOBJ_EX", "ccollections\nOrderedDict\n)}\x92", "0x92"},
      {"EXT1", "\x82\x01", "0x82"},
      {"EXT2", "\x83\x01\x01", "0x83"},
      {"EXT4", "\x84\x01\x01\x01\x01", "0x84"},
      {"PERSID", "Ptouch\n", "0x50"},
      {"BINPERSID of something else", command + "Q", "not a storage"},
      {"NEXT_BUFFER", "\x97", "0x97"},
      {"READONLY_BUFFER", tensor + "\x98", "0x98"},
      {"BYTEARRAY8", "\x96" + raw(uint64_t{1} << 40), "0x96"},
      {"STRING", "S'x'\n", "0x53"},
      {"nested REDUCE", "ccollections\nOrderedDict\n)R)R", "not a function"},
      {"REDUCE of a tensor", tensor + ")R", "not a function"},
      {"BUILD with __setstate__", tensor + "}" + text_op("__setstate__") + "cos\nsystem\nsb", "os.system"},
      {"BUILD of a tensor", tensor + "}" + text_op("__setstate__") + command + "sb", "BUILD"},
      {"BUILD of a function", "ctorch._utils\n_rebuild_tensor_v2\n}b", "BUILD"},
      {"a hook that executes", "ctorch._utils\n_rebuild_parameter\n" + tensor + "\x89" + "cos\nsystem\n\x87R", "os.system"},
      {"an NPU format that is a call",
       TensorClaim{.function = "torch_npu.utils.storage\n_rebuild_npu_tensor\n", .more = "cposix\nsystem\n" + command + "\x85R"}.ops(),
       "posix.system"},
      {"an NPU format of text", "ctorch_npu.npu._format\nFormat\n" + command + "\x85R", "not an integer"},
      {"another class of torch_npu", "ctorch_npu.utils.storage\n_cpu\n", "torch_npu.utils.storage._cpu"},
  };
  for (const auto& row : rows) {
    CAPTURE(std::string(row.name));
    check_refused(write_bytes(dir / "x.pt", torch_archive(pickle(row.ops))), row.part);
  }
  CHECK_FALSE(fs::exists(mark));
}

TEST_CASE("tensors that are not read say how to save them") {
  const TempDir dir;
  const std::vector<std::pair<std::string, const char*>> rows = {
      {TensorClaim{.storage = "torch\nComplexFloatStorage\n"}.ops(), "view_as_real"},
      {TensorClaim{.storage = "torch\nQInt8Storage\n"}.ops(), "dequantize"},
      {"ctorch._utils\n_rebuild_qtensor\n", "dequantize"},
      {"ctorch._utils\n_rebuild_sparse_tensor\n", "to_dense"},
      {"ctorch._utils\n_rebuild_sparse_csr_tensor\n", "to_dense"},
      {"ctorch._utils\n_rebuild_tensor_v3\n", "torch.float32"},
      {"ctorch._tensor\n_rebuild_from_type_v2\n", "detach"},
      {TensorClaim{.more = "}" + text_op("neg") + "\x88s"}.ops(), "resolve_neg"},
      {TensorClaim{.more = "}" + text_op("npu_format_/ND") + "\x88s" + text_op("conj") + "\x88s"}.ops(), "resolve_neg"},
  };
  for (const auto& [ops, part] : rows) check_refused(write_bytes(dir / "x.pt", torch_archive(pickle(ops))), part);
}

TEST_CASE("pickles that are broken") {
  const TempDir dir;
  struct Row {
    std::string pickled;
    const char* part;
  };
  const auto text8 = [](uint64_t size) { return "\x80\x04\x8d" + raw(size) + "x."; };
  const std::vector<Row> rows = {
      {"", "is truncated"},
      {"\x80", "is truncated"},
      {"\x80\x02", "is truncated"},
      {"\x80\x02" + TensorClaim{}.ops(), "is truncated"},
      {text8(UINT64_MAX), "is truncated"},
      {text8(uint64_t{1} << 63), "is truncated"},
      {"\x80\x02X\xff\xff\xff\xffx.", "is truncated"},
      {"\x80\x02T\xff\xff\xff\x7fx.", "is truncated"},
      {"\x80\x02"
       "B\xff\xff\xff\xffx.",
       "is truncated"},
      {"\x80\x02\x8a\xffx.", "is truncated"},
      {"\x80\x02\x8b" + raw<uint32_t>(0x7fffffff) + "x.", "is truncated"},  // LONG4
      {"\x80\x02\x8b" + raw<int32_t>(-1) + ".", "is truncated"},
      {"\x80\x04\x95" + raw(UINT64_MAX), "is truncated"},  // a frame with no content
      {"\x80\x06N.", "protocol 6"},
      {"\x80\x02"
       "cos",
       "is truncated"},
      {"\x80\x02h\xff.", "memo"},
      {"\x80\x02j\xff\xff\xff\xff.", "memo"},
      {"\x80\x02q\x01.", "from an empty stack"},
      {"\x80\x02(q\x01.", "from an empty stack"},
      {"\x80\x02" + std::string(5, '0') + ".", "from an empty stack"},
      {"\x80\x02\x85.", "from an empty stack"},
      {"\x80\x02R.", "from an empty stack"},
      {"\x80\x02}(((u.", "from an empty stack"},
      {std::string(100'000, 'x'), ""},
  };
  for (const auto& row : rows) {
    CAPTURE(std::string(row.part));
    check_refused(write_bytes(dir / "x.pt", torch_archive(row.pickled)), row.part);
  }
}

TEST_CASE("claims about the storage") {
  const TempDir dir;
  const auto huge = [](int64_t value) { return integer_op(value); };
  const auto two = [](const std::string& a, const std::string& b) { return a + b + "\x86"; };
  const int64_t far = int64_t{1} << 62;
  struct Row {
    TensorClaim claim;
    const char* part;
  };
  const std::vector<Row> rows = {
      {{.offset = "K\x01"}, "beyond its storage"},
      {{.offset = huge(INT64_MAX)}, "begins after the end"},
      {{.offset = huge(INT64_MIN)}, "begins before"},
      {{.offset = huge(far), .size = two("K\1", "K\1")}, "begins after the end"},
      {{.stride = two(huge(INT64_MAX), "K\1")}, "beyond its storage"},
      {{.stride = two(huge(INT64_MIN), "K\1")}, "negative stride"},
      {{.stride = two("K\3", huge(-1))}, "negative stride"},
      {{.size = two(huge(far), huge(far))}, "impossible"},
      {{.size = two(huge(-1), "K\1")}, "impossible"},
      {{.size = two(huge(INT64_MIN), huge(INT64_MIN))}, "impossible"},
      {{.size = two("K\0"s, huge(-1))}, "impossible"},
      {{.size = two(huge(far), "K\1"), .stride = two("K\0"s, "K\0"s)}, "more elements than its storage"},
      {{.size = two(huge(1 << 14), huge(1 << 14)), .stride = two("K\0"s, "K\0"s)}, "more elements than its storage"},
      {{.size = "K\x02\x85"}, "1 sizes and 2 strides"},
      {{.size = "K\x02"}, "not a tuple of integers"},
      {{.size = two("G" + std::string(8, '\0'), "K\1")}, "not a tuple of integers"},
      {{.size = two("\x8a\x09" + std::string(9, '\x7f'), "K\1")}, "not a tuple of integers"},
      {{.size = "(" + std::string(65 * 2, 'K') + "t"}, "not a tuple of integers"},
      {{.storage_size = "K\x07"}, "its storage claims 7"},
      {{.size = "K\1\x85", .stride = "K\1\x85", .storage_size = "K\x05"}, "its storage claims 5"},
      {{.size = "K\1\x85", .stride = "K\1\x85", .storage_size = huge(INT64_MAX)}, "its storage claims"},
      {{.size = "K\1\x85", .stride = "K\1\x85", .storage_size = huge(far)}, "its storage claims"},
      {{.size = "K\0\x85"s, .stride = "K\1\x85", .storage_size = huge(-1)}, "negative size"},
      {{.storage_size = "N"}, "not a storage"},
      {{.storage = "torch\nDoubleStorage\n"}, "its storage claims 6"},
      {{.key = "1"}, "missing from the archive"},
      {{.key = "../data.pkl"}, "missing from the archive"},
      {{.key = "../../../../etc/passwd"}, "missing from the archive"},
      {{.key = "/etc/passwd"}, "missing from the archive"},
      {{.key = std::string("0\0", 2)}, "missing from the archive"},
      {{.key = std::string(2000, 'x')}, "2000 bytes"},
  };
  for (const auto& row : rows) {
    CAPTURE(std::string(row.part));
    check_refused(write_bytes(dir / "x.pt", torch_archive(pickle(row.claim.ops()))), row.part);
  }
}

TEST_CASE("bombs cost no memory") {
  const TempDir dir;
  struct Row {
    const char* name;
    std::string content;
  };
  std::string laughs = "](";
  for (char i = 0; i < 100; ++i) laughs += "e]q"s + i + "(" + ("h"s + i) + ("h"s + i);
  std::string doubling = "]q\0"s;
  for (char i = 1; i < 120; ++i) doubling += "0](h"s + static_cast<char>(i - 1) + "h" + static_cast<char>(i - 1) + "eq" + i;
  // A tensor of 64 dimensions, or a storage with a long name, followed by copies of it at three bytes each.
  TensorClaim wide;
  wide.size = wide.stride = "(";
  for (int i = 0; i < 64; ++i) wide.size += "K\1", wide.stride += "K\1";
  wide.size += "t", wide.stride += "t";
  std::string copies = "c" + wide.function + "q\1(" + wide.ops().substr(wide.ops().find("((") + 1);
  copies = copies.substr(0, copies.size() - 1) + "q\2R0";
  for (int i = 0; i < 900'000; ++i) copies += "h\1h\2R0";
  std::string keys =
      "(" + text_op("storage") + "ctorch\nFloatStorage\n" + text_op(std::string(1'000'000, 'k')) + text_op("cpu") + "K\6tq\1Q0";
  for (int i = 0; i < 900'000; ++i) keys += "h\1Q0";
  // Storages with one long name, under one id and under an id each.
  const auto names = text_op("storage") + "q\1ctorch\nFloatStorage\nq\2" + text_op(std::string(1000, 'k')) + "q\3";
  const std::string pieces = "]" + names + "000";
  std::string storages = pieces + "(h\1h\2h\3h\3K\6tq\4Q0", ids = pieces;
  for (int i = 0; i < 1'900'000; ++i) storages += "h\4Q0";
  for (int i = 0; i < 480'000; ++i) ids += "(h\1h\2h\3h\3K\6tQ0";
  std::string appended = "]";
  for (int i = 0; i < 30'000'000; ++i) appended += "Na";
  std::string remembered = "N";
  for (int i = 0; i < 12'000'000; ++i) {
    remembered += 'r';
    for (int byte = 0; byte < 4; ++byte) remembered += static_cast<char>(i >> 8 * byte);
  }
  const std::string mebibyte(1 << 20, '\0');
  const auto claim = [](size_t elements) {
    return pickle(TensorClaim{.size = integer_op(static_cast<int64_t>(elements)) + "\x85",
                              .stride = "K\1\x85",
                              .storage_size = integer_op(static_cast<int64_t>(elements))}
                      .ops());
  };
  const auto packed_zeros = zip({{"a/data.pkl", claim(1 << 28)}, {"a/data/0", deflated(mebibyte, 1024), 8, 1 << 30, true}});
  CHECK(packed_zeros.size() < 10'000'000);
  const std::vector<Row> rows = {
      {"lists of lists", torch_archive(pickle(laughs + "e"))},
      {"doubled lists", torch_archive(pickle(doubling))},
      {"a list that holds itself", torch_archive(pickle("]q\1h\1a"))},
      {"a tuple in its own list", torch_archive(pickle("]q\1h\1\x85q\2ah\2"))},
      {"a dict that holds itself", torch_archive(pickle("}q\1" + text_op("x") + "h\1s"))},
      {"deep lists", torch_archive(pickle(std::string(1'000'000, ']') + std::string(999'999, 'a')))},
      {"deep tuples", torch_archive(pickle("N" + std::string(1'000'000, '\x85')))},
      {"many marks", torch_archive(pickle(std::string(3'000'000, '(')))},
      {"copies of a tensor", torch_archive(pickle(copies + "N"))},
      {"copies of a long name", torch_archive(pickle(keys + "N"))},
      {"1.9 million storages", torch_archive(pickle(storages))},
      {"storages with an id each", torch_archive(pickle(ids))},
      {"a list of 30 million", torch_archive(pickle(appended))},
      {"a memo of 12 million by number", torch_archive(pickle(remembered))},
      {"a memo of 30 million", torch_archive(pickle("N" + std::string(30'000'000, '\x94')))},
      {"a gigabyte of zeros, packed", packed_zeros},
      {"a pickle of zeros, packed", zip({{"a/data.pkl", deflated(mebibyte, 100), 8, 100 << 20, true}, {"a/data/0", "1234"}})},
      {"a size without content, packed", zip({{"a/data.pkl", claim(1'000'000'000)}, {"a/data/0", "1234", 8, 4'000'000'000}})},
      {"a size without content, stored", zip({{"a/data.pkl", claim(1'000'000'000)}, {"a/data/0", "1234", 0, 4'000'000'000}})},
      {"less than there is, packed", zip({{"a/data.pkl", claim(1)}, {"a/data/0", std::string(60'000'000, 'x'), 8, 4}})},
  };
  for (const auto& row : rows) {
    CAPTURE(std::string(row.name));
    const auto path = write_bytes(dir / "x.pt", row.content);
    CHECK_THROWS_AS(read_tensor_file(path), Error);
    if (!kCountsMemory) continue;
    CHECK(runs_within(150 + row.content.size() / 1'000'000, [&] {
      try {
        read_tensor_file(path);
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::Data) throw std::runtime_error("out of memory");
      }
    }));
    // The limit allows for load_pth's 64 MiB for the pickle of a state_dict.
    CHECK(runs_within(350 + row.content.size() / 1'000'000, [&] {
      try {
        load_pth(path);
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::Checkpoint) throw std::runtime_error("out of memory");
      }
    }));
  }
}

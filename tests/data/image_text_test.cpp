#include "testing.hpp"

#include "npu_train/data/image_text.hpp"

#include <filesystem>
#include <fstream>

#include "images.hpp"
#include "npu_train/data/datasets.hpp"
#include "token_ids.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

namespace fs = std::filesystem;

// A folder with images and a file of pairs.
struct Album {
  TempDir dir;
  Album() {
    fs::create_directories(dir.path() / "more");
    write_bytes((dir / "a.png").string(), to_png(rough(8, 8)));
    write_bytes((dir / "more/b.JPG").string(), to_jpeg(ramp(9, 12)));
    write_bytes((dir / "c.png").string(), to_png(rough(10, 8)));
  }
  void pairs(const std::string& content, const std::string& name = "train.jsonl") const {
    std::ofstream((dir / name).string(), std::ios::binary) << content;
  }
  DatasetPair open(ConfigNode options = {}) const {
    options.set("root", ConfigNode(dir.path().string()));
    options.set("image_size", ConfigNode(int64_t{8}));
    return builtin_datasets().make({.name = "image_text", .options = std::move(options), .mark = {}}, "data", builtin_transforms());
  }
  void fails(const std::string& content, ErrorKind kind, const std::string& words, ConfigNode options = {}) const {
    pairs(content);
    const auto error = error_of([&] { open(options); });
    CHECK(((error.kind() == kind)));
    CHECK_MESSAGE(std::string(error.what()).find(words) != std::string::npos, error.what());
  }
};

const char* const kTwo = "{\"image\": \"a.png\", \"text\": \"ab\"}\n{\"image\": \"more/b.JPG\", \"text\": \"cde\"}\n";

}  // namespace

TEST_CASE("pairs of images and texts, images without a text are counted") {
  const Album album;
  album.pairs(kTwo);
  const auto pair = album.open();
  REQUIRE(pair.train->size() == 2);
  CHECK(pair.summary() == "2 images, 1 image without a text");
  const auto* data = dynamic_cast<const CaptionedImages*>(pair.train.get());
  REQUIRE(data != nullptr);
  CHECK(data->caption(0) == std::vector<int64_t>{'a', 'b', 0});
  CHECK(data->caption(1) == std::vector<int64_t>{'c', 'd', 'e', 0});
  CHECK((data->get(1).fields[0].second.sizes() == at::IntArrayRef({3, 9, 12})));
  CHECK(data->where(1).ends_with("train.jsonl, line 2 (more/b.JPG)"));
  CHECK(pair.info().num_classes == 0);
}

TEST_CASE("a batch has the images, and the texts filled up to the longest one") {
  const Album album;
  album.pairs(std::string(kTwo) + "{\"image\": \"a.png\", \"tokens\": [7]}\n");
  const auto pair = album.open({{"pad_token", 255}, {"batch_size", 2}, {"num_workers", "0"}, {"context", 6}});
  auto loader = train_loader(pair, {});
  loader.begin_epoch(0);
  std::vector<int64_t> seen;
  while (auto batch = loader.next()) {
    CHECK((batch->input().sizes().slice(1) == at::IntArrayRef({3, 8, 8})));
    const auto tokens = batch->at("tokens");
    CHECK_FALSE(batch->has("target"));
    int64_t longest = 0;
    for (int64_t i = 0; i < batch->size; ++i) {
      const auto expected = dynamic_cast<const CaptionedImages&>(*pair.train).caption(batch->ids[static_cast<size_t>(i)]);
      auto row = ids_of(tokens[i]);
      longest = std::max<int64_t>(longest, static_cast<int64_t>(expected.size()));
      REQUIRE(row.size() >= expected.size());
      CHECK(std::equal(expected.begin(), expected.end(), row.begin()));
      for (size_t k = expected.size(); k < row.size(); ++k) CHECK(row[k] == 255);
      seen.push_back(batch->ids[static_cast<size_t>(i)]);
    }
    CHECK(tokens.size(1) == longest);
  }
  std::sort(seen.begin(), seen.end());
  CHECK(seen == std::vector<int64_t>{0, 1, 2});

  LoaderOptions fixed;
  fixed.last_batch = LastBatch::Pad;
  auto padded = train_loader(pair, fixed);
  padded.begin_epoch(0);
  padded.next();
  const auto last = *padded.next();
  CHECK((last.at("tokens").sizes() == at::IntArrayRef({2, 6})));
  CHECK(ids_of(last.at("tokens")[0]) == ids_of(last.at("tokens")[1]));
  CHECK(last.size == 1);
}

TEST_CASE("an image that cannot be decoded is omitted with its text") {
  const Album album;
  album.pairs(kTwo);
  write_bytes((album.dir / "a.png").string(), {1, 2, 3});
  const auto pair = album.open({{"batch_size", 2}, {"num_workers", "0"}, {"on_bad_sample", "skip"}});
  auto loader = train_loader(pair, {});
  loader.begin_epoch(0);
  const auto batch = *loader.next();
  CHECK(batch.ids == std::vector<int64_t>{1});
  CHECK(ids_of(batch.at("tokens")) == std::vector<int64_t>{'c', 'd', 'e', 0});
}

TEST_CASE("validation: a file, or the last pairs") {
  const Album album;
  album.pairs(kTwo);
  album.pairs("{\"image\": \"c.png\", \"text\": \"x\"}", "val.jsonl");
  const auto pair = album.open({{"val", "val.jsonl"}});
  CHECK(pair.val->size() == 1);
  CHECK(pair.summary() == "2 + 1 images");
  const auto split = album.open({{"val_fraction", 0.5}});
  CHECK(split.train->size() == 1);
  CHECK(split.val->where(0).ends_with("line 2 (more/b.JPG)"));
}

TEST_CASE("a name must not lead out of the folder") {
  const Album album;
  const TempDir other;
  write_bytes((other / "secret.png").string(), to_png(rough(8, 8)));
  fs::create_symlink(other / "secret.png", album.dir / "link.png");
  for (const auto& name :
       {std::string("../secret.png"), (other / "secret.png").string(), std::string("more/../../secret.png"), std::string("link.png")})
    album.fails("{\"image\": \"" + name + "\", \"text\": \"a\"}", ErrorKind::Data,
                "line 1: the image '" + name + "' leads out of data.root", {{"on_bad_sample", "skip"}});
}

TEST_CASE("bad lines are one error each, or are counted") {
  const Album album;
  album.fails("{\"text\": \"a\"}", ErrorKind::Data, "train.jsonl, line 1");
  album.fails("{\"image\": 3, \"text\": \"a\"}", ErrorKind::Data, "line 1: image");
  album.fails("{\"image\": \"a.png\"}", ErrorKind::Data, "line 1: the line has no text");
  album.fails("{\"image\": \"train.jsonl\", \"text\": \"a\"}", ErrorKind::Data, "a .jpg, .jpeg, .png, .webp or .bmp file");
  album.fails("{\"image\": \"no.png\", \"text\": \"a\"}", ErrorKind::Data, "line 1: there is no file");
  album.fails("{\"image\": \"a.png\", \"text\": \"\"}", ErrorKind::Data, "line 1: the text is empty");
  album.fails("{\"image\": \"a.png\", \"text\": \"abcdef\"}", ErrorKind::Data, "7 tokens; allowed: at most 4", {{"context", 4}});
  album.fails("", ErrorKind::Data, "no pair of image and text");
  album.fails(kTwo, ErrorKind::Data, "nothing.jsonl", {{"train", "nothing.jsonl"}});
  album.fails(kTwo, ErrorKind::Usage, "mixup and cutmix", {{"mixup_alpha", 0.2}});
  album.pairs(std::string(kTwo) + "{\"image\": \"no.png\", \"text\": \"a\"}\n{\"image\": \"a.png\", \"text\": \"\"}\n");
  const auto pair = album.open({{"on_bad_sample", "skip"}});
  CHECK(pair.summary() == "2 images, 1 image without a text, 1 pair omitted (no such image), 1 document omitted (empty)");
}

TEST_CASE("questions and answers: the text of each line, and its answer alone may be shortened") {
  const Album album;
  album.pairs(
      "{\"image\": \"a.png\", \"question\": \"ab?\", \"answer\": \"cd\"}\n"
      "{\"image\": \"c.png\", \"question\": [7], \"answer\": [8, 9, 10, 11]}\n");
  const auto open = [&](ConfigNode options) {
    options.set("root", ConfigNode(album.dir.path().string()));
    options.set("image_size", ConfigNode(int64_t{8}));
    options.set("image_tokens", ConfigNode(int64_t{2}));
    return builtin_datasets().make({.name = "image_questions", .options = std::move(options), .mark = {}}, "data", builtin_transforms());
  };
  const auto pair = open({});
  const auto& data = dynamic_cast<const CaptionedImages&>(*pair.train);
  CHECK(data.caption(0) == std::vector<int64_t>{255, 255, 'a', 'b', '?', '\n', 'c', 'd', 0});
  CHECK(data.prompt(0) == 6);
  CHECK(data.caption(1) == std::vector<int64_t>{255, 255, 7, 10, 8, 9, 10, 11, 0});
  CHECK(pair.info().name == "image_questions");
  const auto other = open({{"begin_token", 5}, {"end_token", 6}, {"separator", -1}});
  CHECK(dynamic_cast<const CaptionedImages&>(*other.train).caption(1) == std::vector<int64_t>{5, 255, 255, 7, 8, 9, 10, 11, 6});
  CHECK(dynamic_cast<const CaptionedImages&>(*other.train).prompt(1) == 4);
  const auto shorter = open({{"context", 8}, {"long_documents", "truncate"}});
  CHECK(dynamic_cast<const CaptionedImages&>(*shorter.train).caption(0) == std::vector<int64_t>{255, 255, 'a', 'b', '?', '\n', 'c', 0});
  CHECK(shorter.summary() == "2 images, 1 image without a text, 2 documents truncated to 8 tokens");

  const auto fails = [&](const std::string& line, ErrorKind kind, const std::string& words, ConfigNode options = {}) {
    album.pairs(line);
    const auto error = error_of([&] { open(std::move(options)); });
    CHECK(((error.kind() == kind)));
    CHECK_MESSAGE(std::string(error.what()).find(words) != std::string::npos, error.what());
  };
  fails("{\"image\": \"a.png\", \"question\": \"a\"}", ErrorKind::Data, "line 1");
  fails("{\"image\": \"a.png\", \"question\": \"a\", \"answer\": \"\"}", ErrorKind::Data, "line 1: the answer is empty");
  fails("{\"image\": \"a.png\", \"question\": [255], \"answer\": \"b\"}", ErrorKind::Data, "line 1: the text has the token 255");
  fails("{\"image\": \"a.png\", \"question\": [-1], \"answer\": \"b\"}", ErrorKind::Data, "line 1: question: token 0 is -1");
  fails("{\"image\": \"a.png\", \"question\": \"abcdef\", \"answer\": \"b\"}", ErrorKind::Data, "11 tokens, 9 of them before the answer",
        {{"context", 10}});
  fails("{\"image\": \"a.png\", \"question\": \"abcdef\", \"answer\": \"b\"}", ErrorKind::Data, "allowed: at most 10",
        {{"context", 10}, {"long_documents", "truncate"}});
  fails("{\"image\": \"a.png\", \"question\": [300], \"answer\": \"b\"}", ErrorKind::Data, "a token is 300; allowed: 0 to 255",
        {{"vocab_size", 256}});
  album.pairs(
      "{\"image\": \"a.png\", \"question\": \"a\", \"answer\": \"\"}\n{\"image\": \"a.png\", \"question\": \"a\", \"answer\": \"b\"}");
  CHECK(open({{"on_bad_sample", "skip"}}).summary() == "1 images, 2 images without a text, 1 document omitted (empty)");
}

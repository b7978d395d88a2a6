#include "testing.hpp"

#include "npu_train/models/weights.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn_like.h>

#include <algorithm>
#include <map>

#include "models/by_path.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

std::map<std::string, at::Tensor> tensors_by_name(const NamedTensors& tensors) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, value] : tensors) CHECK(out.emplace(name, value).second);
  return out;
}

// Checks that both have the same names with the same values, in any order.
void check_equal(const NamedTensors& a, const NamedTensors& b) {
  const auto other = tensors_by_name(b);
  CHECK(a.size() == other.size());
  for (const auto& tensor : tensors_by_name(a)) {
    const auto found = other.find(tensor.first);
    REQUIRE_MESSAGE(found != other.end(), tensor.first);
    CHECK_MESSAGE(at::equal(tensor.second, found->second), tensor.first);
  }
}

// Returns parameters and running statistics of a residual network with two stages of bottlenecks, under torchvision's names.
NamedTensors resnet_tensors() {
  NamedTensors out;
  const auto norm = [&](const std::string& name) {
    for (const char* part : {".weight", ".bias", ".running_mean", ".running_var"}) out.emplace_back(name + part, at::randn({4}));
    out.emplace_back(name + ".num_batches_tracked", at::randn({}).to(at::kLong));
  };
  const auto pair = [&](const std::string& conv, const std::string& bn) {
    out.emplace_back(conv + ".weight", at::randn({4, 4, 1, 1}));
    norm(bn);
  };
  pair("conv1", "bn1");
  for (const std::string block : {"layer1.0.", "layer1.1.", "layer2.0."}) {
    for (const std::string i : {"1", "2", "3"}) pair(block + "conv" + i, block + "bn" + i);
    if (block.ends_with(".0.")) pair(block + "downsample.0", block + "downsample.1");
  }
  out.emplace_back("fc.weight", at::randn({10, 4}));
  out.emplace_back("fc.bias", at::randn({10}));
  return out;
}

// Returns the parameters of a GPT-2 with two blocks, under our names.
NamedTensors gpt2_tensors() {
  NamedTensors out = {{"token_embedding.weight", at::randn({7, 4})}, {"position_embedding.weight", at::randn({5, 4})}};
  const auto layer = [&](const std::string& name, at::IntArrayRef weight) {
    out.emplace_back(name + ".weight", at::randn(weight));
    out.emplace_back(name + ".bias", at::randn({weight[0]}));
  };
  for (const std::string block : {"blocks.0.", "blocks.1."}) {
    layer(block + "ln_1", {4});
    layer(block + "attention.qkv", {12, 4});
    layer(block + "attention.proj", {4, 4});
    layer(block + "ln_2", {4});
    layer(block + "mlp.fc1", {16, 4});
    layer(block + "mlp.fc2", {4, 16});
  }
  layer("ln", {4});
  return out;
}

// Returns the parameters of a BERT with two blocks, under our names, and with a head for masked tokens or for classes.
NamedTensors bert_tensors(bool classes) {
  NamedTensors out = {{"token_embedding.weight", at::randn({7, 4})},
                      {"position_embedding.weight", at::randn({5, 4})},
                      {"type_embedding.weight", at::randn({2, 4})}};
  const auto layer = [&](const std::string& name, at::IntArrayRef weight) {
    out.emplace_back(name + ".weight", at::randn(weight));
    out.emplace_back(name + ".bias", at::randn({weight[0]}));
  };
  layer("ln", {4});
  for (const std::string block : {"blocks.0.", "blocks.1."}) {
    for (const std::string part : {"q_proj", "k_proj", "v_proj", "proj"}) layer(block + "attention." + part, {4, 4});
    layer(block + "ln_1", {4});
    layer(block + "mlp.fc1", {16, 4});
    layer(block + "mlp.fc2", {4, 16});
    layer(block + "ln_2", {4});
  }
  layer(classes ? "pooler" : "mlm.fc", {4, 4});
  layer(classes ? "classifier" : "mlm.ln", classes ? at::IntArrayRef({3, 4}) : at::IntArrayRef({4}));
  if (!classes) out.emplace_back("mlm.bias", at::randn({7}));
  return out;
}

NamedTensors leaving_out(NamedTensors tensors, const std::string& name) {
  std::erase_if(tensors, [&](const auto& t) { return t.first == name; });
  return tensors;
}

}  // namespace

TEST_CASE("names of a vit as timm and Hugging Face have them") {
  const ByPath net(vit_shapes());
  const auto tensors = named_state(net);
  struct Row {
    const char* naming;
    const char* ours;
    const char* theirs;
  };
  const Row rows[] = {
      {"timm", "class_token", "cls_token"},
      {"timm", "conv_proj.bias", "patch_embed.proj.bias"},
      {"timm", "encoder.pos_embedding", "pos_embed"},
      {"timm", "encoder.layers.encoder_layer_1.ln_1.weight", "blocks.1.norm1.weight"},
      {"timm", "encoder.layers.encoder_layer_1.self_attention.in_proj_bias", "blocks.1.attn.qkv.bias"},
      {"timm", "encoder.layers.encoder_layer_1.self_attention.out_proj.weight", "blocks.1.attn.proj.weight"},
      {"timm", "encoder.layers.encoder_layer_0.ln_2.bias", "blocks.0.norm2.bias"},
      {"timm", "encoder.layers.encoder_layer_0.mlp.0.weight", "blocks.0.mlp.fc1.weight"},
      {"timm", "encoder.layers.encoder_layer_0.mlp.3.weight", "blocks.0.mlp.fc2.weight"},
      {"timm", "encoder.ln.weight", "norm.weight"},
      {"timm", "heads.head.weight", "head.weight"},
      {"hf", "class_token", "vit.embeddings.cls_token"},
      {"hf", "conv_proj.weight", "vit.embeddings.patch_embeddings.projection.weight"},
      {"hf", "encoder.pos_embedding", "vit.embeddings.position_embeddings"},
      {"hf", "encoder.layers.encoder_layer_1.ln_1.weight", "vit.layers.1.layernorm_before.weight"},
      {"hf", "encoder.layers.encoder_layer_1.self_attention.out_proj.bias", "vit.layers.1.attention.o_proj.bias"},
      {"hf", "encoder.layers.encoder_layer_1.mlp.3.bias", "vit.layers.1.mlp.fc2.bias"},
      {"hf", "encoder.ln.bias", "vit.layernorm.bias"},
      {"hf", "heads.head.bias", "classifier.bias"},
      {"hf4", "encoder.layers.encoder_layer_0.self_attention.out_proj.bias", "vit.encoder.layer.0.attention.output.dense.bias"},
      {"hf4", "encoder.layers.encoder_layer_0.ln_2.weight", "vit.encoder.layer.0.layernorm_after.weight"},
      {"hf4", "encoder.layers.encoder_layer_0.mlp.0.weight", "vit.encoder.layer.0.intermediate.dense.weight"},
      {"hf4", "encoder.layers.encoder_layer_0.mlp.3.weight", "vit.encoder.layer.0.output.dense.weight"},
  };
  const auto ours = tensors_by_name(tensors);
  for (const auto& row : rows) {
    CAPTURE(std::string(row.theirs));
    const auto theirs = tensors_by_name(renamed_weights(tensors, row.naming).tensors);
    REQUIRE(theirs.count(row.theirs) == 1);
    CHECK(at::equal(theirs.at(row.theirs), ours.at(row.ours)));
  }
}

TEST_CASE("every naming is recognised, loaded into the network, and translated back to equal tensors") {
  for (const bool split : {false, true})
    for (const auto& naming : weight_namings()) {
      CAPTURE(naming);
      CAPTURE(split);
      const ByPath from(vit_shapes(2, 4, 5, 2, split));
      ByPath to(vit_shapes(2, 4, 5, 2, split)), fused(vit_shapes());
      const auto theirs = renamed_weights(named_state(from), naming);
      CHECK(theirs.from.family == "vit");
      CHECK(theirs.from.naming == "torchvision");
      CHECK(theirs.omitted.empty());
      CHECK(theirs.tensors.size() == (naming.starts_with("hf") ? 40u : 32u));

      const auto report = load_weights(to, theirs.tensors);
      CHECK(report.complete());
      CHECK(report.naming.naming == naming);
      CHECK(report.naming.family == "vit");
      check_equal(named_state(to), named_state(from));

      load_weights(fused, named_state(from));
      check_equal(renamed_weights(theirs.tensors, "torchvision").tensors, named_state(fused));
    }
}

TEST_CASE("query, key and value keep their order when they are fused and split") {
  ByPath net(vit_shapes(1));
  const auto stem = std::string("encoder.layers.encoder_layer_0.self_attention.in_proj_weight");
  const auto whole = tensors_by_name(named_state(net)).at(stem);
  const auto hf = tensors_by_name(renamed_weights(named_state(net), "hf4").tensors);
  const auto part = [&](const std::string& name) { return hf.at("vit.encoder.layer.0.attention.attention." + name + ".weight"); };
  CHECK(at::equal(part("query"), whole.narrow(0, 0, 4)));
  CHECK(at::equal(part("key"), whole.narrow(0, 4, 4)));
  CHECK(at::equal(part("value"), whole.narrow(0, 8, 4)));
  const auto timm = tensors_by_name(renamed_weights(renamed_weights(named_state(net), "hf4").tensors, "timm").tensors);
  CHECK(at::equal(timm.at("blocks.0.attn.qkv.weight"), whole));
}

TEST_CASE("names of a residual network as Hugging Face has them; timm has torchvision's") {
  const auto tensors = resnet_tensors();
  const auto hf = renamed_weights(tensors, "hf");
  CHECK(hf.tensors.size() == tensors.size());
  const auto theirs = tensors_by_name(hf.tensors), ours = tensors_by_name(tensors);
  for (const auto& pair : std::map<std::string, std::string>{
           {"conv1.weight", "resnet.embedder.embedder.convolution.weight"},
           {"bn1.running_var", "resnet.embedder.embedder.normalization.running_var"},
           {"layer1.1.conv1.weight", "resnet.encoder.stages.0.layers.1.layer.0.convolution.weight"},
           {"layer2.0.bn2.running_mean", "resnet.encoder.stages.1.layers.0.layer.1.normalization.running_mean"},
           {"layer2.0.conv3.weight", "resnet.encoder.stages.1.layers.0.layer.2.convolution.weight"},
           {"layer1.0.downsample.0.weight", "resnet.encoder.stages.0.layers.0.shortcut.convolution.weight"},
           {"layer2.0.downsample.1.num_batches_tracked", "resnet.encoder.stages.1.layers.0.shortcut.normalization.num_batches_tracked"},
           {"fc.bias", "classifier.1.bias"}}) {
    CAPTURE(pair.first);
    const auto found = theirs.find(pair.second);
    REQUIRE(found != theirs.end());
    CHECK(at::equal(found->second, ours.at(pair.first)));
  }
  CHECK(find_naming({}).family.empty());
  std::vector<std::string> names;
  for (const auto& [name, value] : hf.tensors) names.push_back("module." + name);
  CHECK(find_naming(names).naming == "hf");
  CHECK(find_naming(names).str() == "a resnet with the names of Hugging Face (transformers 5), Hugging Face (files, transformers 4)");
  check_equal(renamed_weights(hf.tensors, "timm").tensors, tensors);
}

TEST_CASE("a network without a head, and further tensors of a checkpoint") {
  const ByPath net(vit_shapes());
  auto tensors = renamed_weights(named_state(net), "hf4").tensors;
  for (const char* name : {"classifier.weight", "classifier.bias"}) tensors = leaving_out(tensors, name);
  for (auto& [name, value] : tensors) name = "state_dict.model." + name.substr(4);  // The names of ViTModel do not begin with vit.
  tensors.emplace_back("state_dict.model.pooler.dense.weight", at::randn({4, 4}));
  tensors.emplace_back("optimizer.state.0.exp_avg", at::randn({4}));
  const auto timm = renamed_weights(tensors, "timm");
  CHECK(timm.from.naming == "hf4");
  CHECK(timm.tensors.size() == 30);
  CHECK(timm.omitted == std::vector<std::string>{"state_dict.model.pooler.dense.weight", "optimizer.state.0.exp_avg"});
}

TEST_CASE("what cannot be translated is an error") {
  const ByPath net(vit_shapes());
  const auto tensors = named_state(net);
  const auto error = [](const NamedTensors& t, const std::string& naming) { return error_of([&] { renamed_weights(t, naming); }); };
  CHECK(error(tensors, "keras").kind() == ErrorKind::Usage);
  CHECK(has(error(tensors, "keras").what(), "torchvision, timm, hf, hf4"));
  const auto unknown = error({{"conv1.weight", at::randn({1})}, {"fc.weight", at::randn({1})}}, "timm");
  CHECK(unknown.kind() == ErrorKind::Checkpoint);
  CHECK(has(unknown.what(), "not those of a known network"));
  const auto half = error(leaving_out(renamed_weights(tensors, "hf").tensors, "vit.layers.1.attention.k_proj.bias"), "timm");
  CHECK(half.kind() == ErrorKind::Checkpoint);
  CHECK(has(half.what(), "encoder_layer_1.self_attention.in_proj_bias"));
}

TEST_CASE("weights of a known library with a layer too many are refused, and the fitting configuration is named") {
  for (const auto& naming : weight_namings()) {
    CAPTURE(naming);
    const ByPath deeper(vit_shapes(3, 4, 10, 2));
    ByPath net(vit_shapes(2, 4, 5, 2));
    const auto before = named_state(net)[1].second.clone();
    const auto error = error_of([&] { load_weights(net, renamed_weights(named_state(deeper), naming).tensors); });
    CHECK(error.kind() == ErrorKind::Checkpoint);
    for (const char* part : {"tensors of layers that the model does not have", "model.depth=3", "model.image_size=6"})
      CHECK_MESSAGE(has(error.what(), part), error.what());
    CHECK_FALSE(has(error.what(), "model.dim"));
    CHECK(at::equal(named_state(net)[1].second, before));
  }
}

TEST_CASE("the configuration that shapes determine") {
  const auto keys = configuration_of(named_state(ByPath(vit_shapes(3, 8, 17, 4))));
  CHECK(keys == std::vector<std::pair<std::string, std::string>>{{"model.num_classes", "10"},
                                                                 {"model.image_size", "16"},
                                                                 {"model.channels", "3"},
                                                                 {"model.patch_size", "4"},
                                                                 {"model.dim", "8"},
                                                                 {"model.depth", "3"},
                                                                 {"model.mlp_dim", "0"}});
  CHECK(configuration_of({{"fc.weight", at::randn({2, 2})}}).empty());
}

TEST_CASE("a gpt2 has the names of Hugging Face, with transposed matrices") {
  const auto tensors = gpt2_tensors();
  const auto hf = renamed_weights(tensors, "hf");
  CHECK(hf.from.str() == "a gpt2 with the names of npu_train");
  CHECK(hf.tensors.size() == tensors.size());
  const auto theirs = tensors_by_name(hf.tensors), ours = tensors_by_name(tensors);
  const auto equal = [&](const std::string& name, const at::Tensor& value) {
    REQUIRE_MESSAGE(theirs.count(name) == 1, name);
    CHECK_MESSAGE(at::equal(theirs.at(name), value), name);
  };
  equal("transformer.wte.weight", ours.at("token_embedding.weight"));
  equal("transformer.wpe.weight", ours.at("position_embedding.weight"));
  equal("transformer.h.1.ln_1.bias", ours.at("blocks.1.ln_1.bias"));
  equal("transformer.h.1.attn.c_attn.weight", ours.at("blocks.1.attention.qkv.weight").t());
  equal("transformer.h.0.attn.c_attn.bias", ours.at("blocks.0.attention.qkv.bias"));
  equal("transformer.h.0.attn.c_proj.weight", ours.at("blocks.0.attention.proj.weight").t());
  equal("transformer.h.0.ln_2.weight", ours.at("blocks.0.ln_2.weight"));
  equal("transformer.h.1.mlp.c_fc.weight", ours.at("blocks.1.mlp.fc1.weight").t());
  equal("transformer.h.1.mlp.c_proj.weight", ours.at("blocks.1.mlp.fc2.weight").t());
  equal("transformer.ln_f.bias", ours.at("ln.bias"));
  check_equal(renamed_weights(hf.tensors, "torchvision").tensors, tensors);
  const auto timm = error_of([&] { renamed_weights(tensors, "timm"); });
  CHECK(timm.kind() == ErrorKind::Usage);
  CHECK_MESSAGE(has(timm.what(), "'timm' has no gpt2; allowed: torchvision, hf, hf4"), timm.what());
}

TEST_CASE("a gpt2 of Hugging Face: masks among the tensors are not weights, a head must be the token embedding") {
  const auto tensors = gpt2_tensors();
  const auto net = [&] {
    auto out = std::make_shared<ByPath>();
    for (const auto& [name, value] : tensors) out->add(name, at::randn_like(value));
    return out;
  };
  auto file = renamed_weights(tensors, "hf").tensors;
  for (auto& [name, value] : file) name = name.substr(std::string("transformer.").size());  // as in the published files
  file.emplace_back("h.0.attn.bias", at::ones({1, 1, 5, 5}));
  file.emplace_back("lm_head.weight", tensors.front().second.clone());
  const auto tied = net();
  const auto report = load_weights(*tied, file);
  CHECK(report.unexpected == std::vector<std::string>{"h.0.attn.bias"});
  CHECK(report.missing.empty());
  check_equal(named_state(*tied), tensors);

  file.back().second[0][0] += 1;
  const auto other = net();
  const auto error = error_of([&] { load_weights(*other, file); });
  CHECK(error.kind() == ErrorKind::Checkpoint);
  CHECK_MESSAGE(has(error.what(), "'wte.weight' and 'lm_head.weight' with different values"), error.what());
}

TEST_CASE("the configuration that the shapes of a gpt2 determine") {
  CHECK(configuration_of(gpt2_tensors()) == std::vector<std::pair<std::string, std::string>>{{"model.vocab_size", "7"},
                                                                                             {"model.context", "5"},
                                                                                             {"model.layers", "2"},
                                                                                             {"model.dim", "4"},
                                                                                             {"model.hidden", "0"},
                                                                                             {"model.tie_embeddings", "true"}});
}

TEST_CASE("a gpt2 with a head of its own keeps it") {
  auto tensors = gpt2_tensors();
  tensors.emplace_back("head.weight", at::randn({7, 4}));
  const auto hf = renamed_weights(tensors, "hf");
  CHECK(hf.omitted.empty());
  CHECK(at::equal(tensors_by_name(hf.tensors).at("lm_head.weight"), tensors.back().second));
  check_equal(renamed_weights(hf.tensors, "torchvision").tensors, tensors);
  const auto keys = configuration_of(tensors);
  CHECK(std::find(keys.begin(), keys.end(), std::pair<std::string, std::string>("model.tie_embeddings", "false")) != keys.end());
}

TEST_CASE("a tensor of a block, or of a part, that ours does not have makes the file one of another network") {
  struct Row {
    const char* naming;  // naming of the file
    NamedTensors network;
    const char* name;
    bool refused;
  };
  const auto vit = named_state(ByPath(vit_shapes())), gpt2 = gpt2_tensors();
  const Row rows[] = {{"timm", vit, "blocks.0.ls1.gamma", true},
                      {"timm", vit, "blocks.1.attn.q_norm.weight", true},
                      {"timm", vit, "blocks.1.anything", true},
                      {"timm", vit, "module.blocks.1.anything", true},
                      {"timm", vit, "reg_token", true},
                      {"timm", vit, "norm_pre.weight", true},
                      {"timm", vit, "head_dist.weight", true},
                      {"timm", vit, "mask_token", false},
                      {"torchvision", vit, "encoder.layers.encoder_layer_0.layer_scale_1", true},
                      {"torchvision", vit, "register_tokens", true},
                      {"hf", vit, "vit.layers.1.layer_scale1.lambda1", true},
                      {"hf4", vit, "vit.encoder.layer.0.anything", true},
                      {"hf4", vit, "vit.pooler.dense.weight", false},
                      {"torchvision", resnet_tensors(), "layer1.0.se.fc1.weight", true},
                      {"hf", resnet_tensors(), "resnet.encoder.stages.0.layers.0.attention.weight", true},
                      {"torchvision", resnet_tensors(), "aux.weight", false},
                      {"hf", gpt2, "transformer.h.0.crossattention.bias", true},
                      {"hf", gpt2, "transformer.h.0.attn.masked_bias", false},
                      {"hf", gpt2, "score.weight", false},
                      {"hf", bert_tensors(false), "bert.encoder.layer.0.attention.self.distance_embedding.weight", true},
                      {"hf", bert_tensors(false), "cls.seq_relationship.weight", false}};
  for (const auto& row : rows) {
    CAPTURE(std::string(row.name));
    ByPath net;
    for (const auto& [name, value] : row.network)
      if (value.is_floating_point()) net.add(name, at::randn_like(value));
    auto file = renamed_weights(row.network, row.naming).tensors;
    load_weights(net, file);
    file.emplace_back(row.name, at::ones({4}));
    const auto report = load_weights(net, file, {.strict = false});
    CHECK(report.unexpected == std::vector<std::string>{row.name});
    CHECK(report.fits() == !row.refused);
    if (row.refused)
      CHECK(has(error_of([&] { load_weights(net, file); }).what(), std::string("that the model does not have: ") + row.name));
  }
}

TEST_CASE("the parts of later ViTs have the names of timm, and none in libraries without them") {
  auto tensors = named_state(ByPath(vit_shapes()));
  for (const std::string block : {"encoder.layers.encoder_layer_0.", "encoder.layers.encoder_layer_1."})
    for (const char* name : {"layer_scale_1", "layer_scale_2", "self_attention.q_norm.weight", "self_attention.k_norm.weight"})
      tensors.emplace_back(block + name, at::randn({4}));
  tensors.emplace_back("register_tokens", at::randn({1, 3, 4}));
  tensors.emplace_back("distillation_token", at::randn({1, 1, 4}));
  tensors.emplace_back("heads.distillation.weight", at::randn({10, 4}));
  const auto timm = renamed_weights(tensors, "timm").tensors;
  const auto theirs = tensors_by_name(timm);
  for (const char* name : {"blocks.1.ls2.gamma", "blocks.0.attn.k_norm.weight", "reg_token", "dist_token", "head_dist.weight"})
    CHECK_MESSAGE(theirs.count(name) == 1, name);
  check_equal(renamed_weights(timm, "torchvision").tensors, tensors);
  CHECK(has(error_of([&] { renamed_weights(tensors, "hf"); }).what(), "has no name in hf"));
  const auto keys = configuration_of(tensors);
  for (const std::pair<std::string, std::string>& key : std::vector<std::pair<std::string, std::string>>{
           {"model.layer_scale", "1e-5"}, {"model.qk_norm", "true"}, {"model.registers", "3"}, {"model.distillation", "heads"}})
    CHECK_MESSAGE(std::find(keys.begin(), keys.end(), key) != keys.end(), key.first);
}

namespace {

// Returns the parameters of a Llama with two blocks and a tied head, under our names.
NamedTensors llama_tensors() {
  NamedTensors tensors = {{"token_embedding.weight", at::randn({7, 4})}};
  for (const std::string block : {"blocks.0.", "blocks.1."}) {
    tensors.emplace_back(block + "norm_1.weight", at::randn({4}));
    for (const std::string part : {"q_proj", "k_proj", "v_proj", "proj"})
      tensors.emplace_back(block + "attention." + part + ".weight", at::randn({4, 4}));
    tensors.emplace_back(block + "norm_2.weight", at::randn({4}));
    for (const std::string part : {"gate", "up"}) tensors.emplace_back(block + "mlp." + part + ".weight", at::randn({6, 4}));
    tensors.emplace_back(block + "mlp.down.weight", at::randn({4, 6}));
  }
  tensors.emplace_back("norm.weight", at::randn({4}));
  return tensors;
}

}  // namespace

TEST_CASE("a llama has the names of Hugging Face, with its own head or without") {
  auto tensors = llama_tensors();
  const auto keys = [](const NamedTensors& of, const std::string& tied) {
    CHECK(configuration_of(of) ==
          std::vector<std::pair<std::string, std::string>>{
              {"model.vocab_size", "7"}, {"model.layers", "2"}, {"model.dim", "4"}, {"model.hidden", "6"}, {"model.tie_embeddings", tied}});
  };
  keys(tensors, "true");
  check_equal(renamed_weights(renamed_weights(tensors, "hf").tensors, "torchvision").tensors, tensors);
  tensors.emplace_back("head.weight", at::randn({7, 4}));
  keys(tensors, "false");
  const auto hf = renamed_weights(tensors, "hf");
  CHECK(hf.from.str() == "a llama with the names of npu_train");
  CHECK(hf.omitted.empty());
  const auto theirs = tensors_by_name(hf.tensors), ours = tensors_by_name(tensors);
  for (const std::pair<std::string, std::string>& names :
       std::vector<std::pair<std::string, std::string>>{{"model.embed_tokens.weight", "token_embedding.weight"},
                                                        {"model.layers.1.input_layernorm.weight", "blocks.1.norm_1.weight"},
                                                        {"model.layers.0.self_attn.k_proj.weight", "blocks.0.attention.k_proj.weight"},
                                                        {"model.layers.0.self_attn.o_proj.weight", "blocks.0.attention.proj.weight"},
                                                        {"model.layers.1.post_attention_layernorm.weight", "blocks.1.norm_2.weight"},
                                                        {"model.layers.1.mlp.down_proj.weight", "blocks.1.mlp.down.weight"},
                                                        {"model.norm.weight", "norm.weight"},
                                                        {"lm_head.weight", "head.weight"}}) {
    REQUIRE_MESSAGE(theirs.count(names.first) == 1, names.first);
    CHECK_MESSAGE(at::equal(theirs.at(names.first), ours.at(names.second)), names.first);
  }
  check_equal(renamed_weights(hf.tensors, "torchvision").tensors, tensors);
}

TEST_CASE("a llama of Hugging Face: other tensors in its blocks are of another network, a tied head must be the token embedding") {
  const auto tensors = llama_tensors();
  const auto net = [&](bool head) {
    auto out = std::make_shared<ByPath>();
    for (const auto& [name, value] : tensors) out->add(name, at::randn_like(value));
    if (head) out->add("head.weight", at::randn({7, 4}));
    return out;
  };
  const auto refused = [](const auto& run, const std::string& why) {
    const auto error = error_of(run);
    CHECK(error.kind() == ErrorKind::Checkpoint);
    CHECK_MESSAGE(has(error.what(), why), error.what());
  };
  auto file = renamed_weights(tensors, "hf").tensors;
  file.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq", at::ones({2}));  // old files have it
  file.emplace_back("lm_head.weight", tensors.front().second.clone());               // state_dict() has it
  const auto tied = net(false);
  const auto report = load_weights(*tied, file);
  CHECK(report.missing.empty());
  CHECK(report.unexpected == std::vector<std::string>{"model.layers.0.self_attn.rotary_emb.inv_freq"});
  check_equal(named_state(*tied), tensors);
  load_weights(*net(true), file);

  auto with_bias = file;  // as in Qwen2
  with_bias.emplace_back("model.layers.1.self_attn.q_proj.bias", at::ones({4}));
  refused([&] { load_weights(*net(false), with_bias); },
          "tensors of layers that the model does not have: model.layers.1.self_attn.q_proj.bias");
  file.back().second[0][0] += 1;
  refused([&] { load_weights(*net(false), file); }, "'model.embed_tokens.weight' and 'lm_head.weight' with different values");
  load_weights(*net(true), file);
}

TEST_CASE("a bert has the names of Hugging Face, above and below the name of the network") {
  for (const bool classes : {false, true}) {
    const auto tensors = bert_tensors(classes);
    const auto hf = renamed_weights(tensors, "hf");
    CHECK(hf.from.str() == "a bert with the names of npu_train");
    CHECK(hf.omitted.empty());
    const auto names = tensors_by_name(hf.tensors);
    CHECK(names.size() == tensors.size());
    CHECK(names.count("bert.embeddings.LayerNorm.weight") == 1);
    CHECK(names.count("bert.encoder.layer.1.attention.self.query.bias") == 1);
    CHECK(names.count("bert.encoder.layer.0.output.LayerNorm.weight") == 1);
    CHECK(names.count(classes ? "bert.pooler.dense.weight" : "cls.predictions.transform.dense.weight") == 1);
    CHECK(names.count(classes ? "classifier.bias" : "cls.predictions.bias") == 1);
    const auto back = renamed_weights(hf.tensors, "torchvision");
    CHECK(back.from.str() == "a bert with the names of Hugging Face (transformers 5), Hugging Face (files, transformers 4)");
    check_equal(back.tensors, tensors);
  }
}

TEST_CASE("the configuration that the shapes of a bert determine") {
  using Keys = std::vector<std::pair<std::string, std::string>>;
  const Keys sizes = {{"model.vocab_size", "7"}, {"model.context", "5"}, {"model.layers", "2"},
                      {"model.dim", "4"},        {"model.hidden", "0"},  {"model.token_types", "2"}};
  auto with_classes = sizes;
  with_classes.emplace_back("model.num_classes", "3");
  CHECK(configuration_of(bert_tensors(false)) == sizes);
  CHECK(configuration_of(bert_tensors(true)) == with_classes);
}

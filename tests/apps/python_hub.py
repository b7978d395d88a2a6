"""Networks of transformers with random weights, for hub_config_test.py: python_hub.py JOBS.json, or --others for the names of the others

Each job is {'type': model_type, 'folder': ..., 'full': whether every field is varied}. Writes in folder/NAME for each variant of the configuration what
save_pretrained writes, and outputs.npy. Prints one JSON document: for each job the variants as {name: field}, "" for the configuration itself."""
import json
import pathlib
import sys
import warnings

import torch

warnings.simplefilter('ignore')
torch.set_num_threads(1)
import any_torchvision  # noqa: E402, F401
import numpy  # noqa: E402
import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TEXT = list(range(1, 24))
IMAGES = (torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(7)) * 255).round() / 255  # values that image files can have
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])  # as in npu_tool predict
DECODER = dict(vocab_size=61, hidden_size=32, intermediate_size=52, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
               bos_token_id=1, eos_token_id=2, pad_token_id=0)
ENCODER = dict(vocab_size=61, hidden_size=32, intermediate_size=52, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=40)
VISION = dict(hidden_size=32, intermediate_size=52, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8)
# Networks that npu_train has, and some others whose tensors have the same names.
OURS = {
    'llama': ('LlamaForCausalLM', DECODER),
    'mistral': ('MistralForCausalLM', DECODER | {'sliding_window': 5}),
    'qwen2': ('Qwen2ForCausalLM', DECODER | {'tie_word_embeddings': True}),
    'gpt2': ('GPT2LMHeadModel', dict(vocab_size=61, n_positions=64, n_embd=32, n_layer=3, n_head=4)),
    'bert': ('BertForMaskedLM', ENCODER),
    'bert_classes': ('BertForSequenceClassification', ENCODER | {'num_labels': 3}),
    'vit': ('ViTForImageClassification', VISION | {'num_labels': 5}),
    'deit': ('DeiTForImageClassificationWithTeacher', VISION | {'num_labels': 5}),
    'deit_one_head': ('DeiTForImageClassification', VISION | {'num_labels': 5}),
    'resnet': ('ResNetForImageClassification', dict(depths=[2, 2, 2, 2], layer_type='basic', hidden_sizes=[64, 128, 256, 512], num_labels=5)),
    'clip': ('CLIPModel', dict(text_config=ENCODER | {'max_position_embeddings': 30, 'eos_token_id': 9}, vision_config=VISION, projection_dim=16)),
}
TYPES = {'deit_one_head': 'deit', 'bert_classes': 'bert'}  # names for two networks of one model_type
OTHERS = {name: ('AutoModelForCausalLM', DECODER) for name in (
    'gemma', 'gemma2', 'granite', 'helium', 'smollm3', 'qwen3', 'phi3', 'olmo', 'olmo2', 'cohere', 'stablelm', 'starcoder2', 'glm', 'glm4', 'exaone4', 'seed_oss',
    'arcee', 'nemotron', 'ernie4_5', 'diffllama', 'apertus')}
OTHERS |= {name: ('AutoModelForMaskedLM', ENCODER) for name in ('electra', 'roberta', 'ernie', 'megatron-bert', 'roformer', 'data2vec-text')}
OTHERS |= {name: ('AutoModelForImageClassification', VISION) for name in ('vit_msn', 'ijepa')}
OTHERS |= {'regnet': ('AutoModelForImageClassification', {}), 'metaclip_2': ('AutoModel', OURS['clip'][1]), 'clipseg': ('AutoModel', OURS['clip'][1])}
# Keys that are not part of the arithmetic, or that give another network's shape.
IGNORED = {'transformers_version', 'architectures', 'model_type', '_name_or_path', 'id2label', 'label2id', 'problem_type', 'torch_dtype', 'dtype', 'output_hidden_states',
           'output_attentions', 'return_dict', 'vocab_size', 'hidden_size', 'embedding_size', 'hidden_sizes', 'depths', 'layer_type', 'image_size', 'num_channels', 'stage_names',
           'out_features', 'out_indices', 'projection_dim', 'n_embd', 'n_layer', 'n_positions', 'num_hidden_layers', 'max_position_embeddings', 'type_vocab_size'}
ACTIVATIONS = ('relu', 'gelu', 'gelu_new', 'quick_gelu', 'silu', 'tanh', 'gelu_10')
ROPES = ({'rope_type': 'default', 'rope_theta': 500.0}, {'rope_type': 'linear', 'factor': 3.0, 'rope_theta': 10000.0},
         {'rope_type': 'dynamic', 'factor': 2.0, 'rope_theta': 10000.0, 'original_max_position_embeddings': 16},
         {'rope_type': 'yarn', 'factor': 4.0, 'rope_theta': 10000.0, 'original_max_position_embeddings': 16},
         {'rope_type': 'yarn', 'factor': 4.0, 'rope_theta': 10000.0, 'original_max_position_embeddings': 16, 'beta_fast': 8.0, 'beta_slow': 2.0, 'mscale': 0.7, 'mscale_all_dim': 0.9},
         {'rope_type': 'yarn', 'factor': 4.0, 'rope_theta': 10000.0, 'original_max_position_embeddings': 16, 'attention_factor': 1.3, 'truncate': False},
         {'rope_type': 'yarn', 'factor': 4.0, 'rope_theta': 10000.0, 'original_max_position_embeddings': 16, 'attention_factor': 1.3},
         {'rope_type': 'llama3', 'factor': 4.0, 'low_freq_factor': 1.0, 'high_freq_factor': 3.0, 'original_max_position_embeddings': 16, 'rope_theta': 100.0},
         {'rope_type': 'default', 'rope_theta': 10000.0, 'partial_rotary_factor': 0.5})
HAND = {'sliding_window': (3, None), 'n_inner': (52,), 'num_key_value_heads': (4, 1), 'head_dim': (8, 16), 'intermediate_size': (40,), 'hidden_act': ACTIVATIONS,
        'activation_function': ACTIVATIONS, 'rope_parameters': ROPES, 'eos_token_id': (2, 60), 'pruned_heads': (), 'patch_size': (16,),
        'num_attention_heads': (2,), 'n_head': (2, 8), 'position_embedding_type': ('relative_key',)}


def values_of(key, value):
    if key in HAND: return [v for v in HAND[key] if v != value]
    if isinstance(value, bool): return [not value]
    if isinstance(value, float): return [value * 2 + 0.01]
    if isinstance(value, int): return [value + 1]
    return []


def variants(config, section=''):
    """(name, field, configuration) of each change of one field."""
    for key, value in config.items():
        if key in IGNORED: continue
        if isinstance(value, dict) and key.endswith('_config'):
            for name, field, changed in variants(value, key): yield f'{key}_{name}', field, config | {key: changed}
        else:
            for i, other in enumerate(values_of(key, value)): yield f'{key}_{i}', key, config | {key: other}


def randomise(net, seed):
    """Every tensor differs from its neighbours, running statistics too."""
    source = torch.Generator().manual_seed(seed)
    noise = lambda value: torch.randn(value.shape, generator=source)
    with torch.no_grad():
        for value in net.parameters(): value.add_(0.1 * noise(value) if value.dim() else 0 * value)
        for name, value in net.named_buffers():
            if name.endswith('running_var'): value.copy_(1 + 0.3 * noise(value).tanh())
            elif name.endswith('running_mean'): value.add_(0.1 * noise(value))
    return net.eval()


def outputs(net, model_type):
    """Logits [tokens or samples, classes]; of CLIP the features of both towers."""
    ids = torch.tensor([TEXT])
    images = (IMAGES - MEAN.view(3, 1, 1)) / STD.view(3, 1, 1)
    with torch.no_grad():
        if model_type in ('vit', 'deit', 'deit_one_head', 'resnet'): return net(images).logits
        if model_type.startswith('bert'): return net(ids, attention_mask=torch.ones_like(ids), token_type_ids=torch.zeros_like(ids)).logits[0]
        if model_type != 'clip': return net(ids).logits[0]
        found = net(input_ids=torch.tensor([TEXT, TEXT[::-1]]), pixel_values=images)
        return torch.cat([found.image_embeds, found.text_embeds])


def make(job):
    model_type, folder = job['type'], pathlib.Path(job['folder'])
    classes, sizes = OURS.get(model_type) or OTHERS[model_type]
    config_class = transformers.CONFIG_MAPPING[TYPES.get(model_type, model_type)]
    base = config_class(**sizes).to_dict()
    names = set(job.get('variants') or ())
    wanted = [('as_it_is', '', base)] + [v for v in variants(base) if (job.get('full') or v[0] in names)]
    done = {}
    for name, field, values in wanted:
        try:
            config = config_class(**{k: v for k, v in values.items() if k not in ('model_type', 'head_dim') or (k, field) == ('head_dim', 'head_dim')})
            cls = getattr(transformers, classes)
            torch.manual_seed(3)
            net = randomise(cls.from_config(config) if classes.startswith('Auto') else cls(config), seed=5)
            expected = outputs(net, model_type) if model_type in OURS else None
        except Exception as e:  # transformers itself refuses the change
            if not field and model_type in OURS: raise
            print(model_type, name, type(e).__name__, str(e)[:200].replace('\n', ' '), file=sys.stderr)
            continue
        net.save_pretrained(folder / name)
        if expected is not None: numpy.save(folder / name / 'outputs.npy', expected.numpy())
        done[name] = field
    missing = names - set(done)
    assert not missing, missing
    return done


if __name__ == '__main__':
    if sys.argv[1] == '--others': print(json.dumps(list(OTHERS)))
    else: print(json.dumps({job['type']: make(job) for job in json.loads(pathlib.Path(sys.argv[1]).read_text())}))

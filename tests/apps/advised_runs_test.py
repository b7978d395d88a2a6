"""Runs every command that a text of this project advises, on small files in place of those that it names; NOT_RUN lists the exceptions."""
import concurrent.futures
import json
import re
import shutil
import struct
import zipfile

import advice
from images import cifar10, png
from programs import BIN, SIM_NPU, SOURCE, ProgramTest, in_full, main, run

NAMED = 'names a subcommand or an option, without its arguments'
NOT_RUN = {
    'npu_tool SUBCOMMAND': 'a placeholder',
    'npu_tool analyze': NAMED,
    'npu_tool analyze --soc': NAMED,
    'npu_tool analyze --try npu': NAMED,
    'npu_tool baseline': NAMED,
    'npu_tool bench --activations': NAMED,
    'npu_tool bench --cards --elsewhere': NAMED,
    'npu_tool compare': NAMED,
    'npu_tool data': NAMED,
    'npu_tool data show': NAMED,
    'npu_tool data stats': NAMED,
    'npu_tool doctor --explain': NAMED,
    'npu_tool eval': NAMED,
    'npu_tool export': NAMED,
    'npu_tool export --atc': NAMED,
    'npu_tool launch': NAMED,
    'npu_tool memory': NAMED,
    'npu_tool average': NAMED,
    'npu_tool data check': NAMED,
    'npu_tool memory X --hbm X': 'apps.memory runs what find-batch prints',
    'npu_tool plan': NAMED,
    'npu_tool profile outputs/resnet50_generated/version_0 --msprof msprof/PROF_DIR': 'needs the tables of msprof; apps.measure',
    'npu_tool predict': NAMED,
    'npu_tool predict --checkpoint': NAMED,
    'npu_tool predict --om': NAMED,
    'npu_tool predict --weights': NAMED,
    'npu_tool report': NAMED,
    'npu_tool serve': NAMED,
    'npu_tool serve RUN': 'runs until it is ended; apps.serve',
    'npu_tool serve RUN --port 8008': 'runs until it is ended; apps.serve',
    'npu_tool serve outputs/resnet50_generated/version_0': 'runs until it is ended; apps.serve',
    'train_app --offline': NAMED,
    'npu_tool predict --om model.om cat.jpg': 'needs CANN; apps.offline_model',
    'npu_tool predict --om model.om cat.jpg dog.png': 'needs CANN; apps.offline_model',
    'npu_tool summary': NAMED,
    'npu_tool tokenize': NAMED,
    'npu_tool validate': NAMED,
    'npu_tool verify-determinism': NAMED,
    'npu_tool weights': NAMED,
    'train_app --detect-anomaly': NAMED,
    'train_app --nproc': NAMED,
    'train_app --nproc X': NAMED,
    'train_app --verify-resume': NAMED,
    'train_app npu_tool npu_train_sim_npu': 'names targets of a build',
    'train_app CONFIG model={name: torchscript, path: net.pt, allow_code: true}': 'apps.torchscript',
    'npu_tool predict --checkpoint RUN model.allow_code=true cat.jpg': 'apps.torchscript',
    'npu_tool weights --from RUN --to trained.pt --as torchscript model.allow_code=true': 'apps.torchscript',
    'npu_tool export --checkpoint RUN model.tower=text --to text.onnx': 'apps.clip',
}
# For each script, the test that runs it, or the reason why none does.
SCRIPTS = {
    'bench_peer': 'apps.bench_peer',
    'build_offline': 'apps.scripts; needs a bundle',
    'budget': 'CI runs it',
    'check_clang': 'apps.scripts; CI runs it',
    'check_aarch64': 'apps.scripts; scripts/prove runs it',
    'check_config_docs': 'CI runs it',
    'check_readme': 'CI runs it',
    'check_tests': 'CI runs it',
    'check_torch': 'apps.scripts; scripts/prove runs it',
    'docs': 'CI runs it',
    'format': 'CI runs it',
    'get_data': 'apps.scripts; needs a network',
    'gpu_bundle': 'apps.scripts; needs a network',
    'launch': 'apps.launch',
    'mutants': 'scripts/prove runs it; CI runs its --check',
    'prove': 'apps.scripts; runs for hours',
    'sanitize': 'CI runs it',
    'setup': 'apps.scripts; needs a network',
    'test': 'apps.scripts; runs this very test',
    'train': 'apps.scripts; builds',
    'try_bare': 'needs root and a network',
}
NPU = 'sim_npu' if SIM_NPU else 'cpu'
# Small files and values that replace those in the texts.
STANDS_FOR = {
    'CONFIG': 'configs/quickstart.yaml', 'CONFIG.yaml': 'configs/quickstart.yaml', 'config.yaml': 'configs/quickstart.yaml', 'my.yaml': 'my.yaml',
    'A': 'dump_a', 'B': 'dump_b', 'DIR': 'my_project', 'CHIP': '910B1', 'dump': 'dump_ranks', 'A.yaml': 'a.yaml', 'B.yaml': 'b.yaml', 'D': NPU, 'N': '0', 'X': NPU, 'npu': NPU, 'npu:0': NPU,
    'device=npu': f'device={NPU}', 'device=<kind>': 'device=cpu', 'resnet50': 'resnet18', 'vit_b16': 'vit_tiny_cifar10', '/data/runs': 'runs',
    'RUN': 'outputs/small/version_0', 'model.image_size=384': 'model.image_size=48', 'FILE': 'file.json', 'PROGRAM': 'true', 'PATH': 'outputs/small/version_0/checkpoints/last', 'model.fused_kernels=false': 'model={name: resnet18, fused_kernels: false}',
    'model.freeze=[conv1, bn1, layer1]': 'model={name: resnet18, freeze: [conv1, bn1, layer1]}'}
SHORTER = {
    'bench': {'--steps': '1', '--warmup': '1', '--infer-steps': '1', '--sweep-steps': '1', '--pairs': '1', '--null-trials': '1', '--seeds': '1', '--scale-steps': '1',
              '--scale-batch': '1,2', '--scale-depth': '1,2', '--scale-image': '32,40', '--scale-threads': '1', '--scale-workers': '1',
              '--scale-layers': '1,2', '--no-machine': ''},
    'checklist': {'--steps': '2'}, 'memory': {'--quick': ''}, 'verify-determinism': {'--steps': '2'},
    'validate': {'--samples': '4', '--train-steps': '1', '--forms-batch': '2', '--forms-pairs': '1', '--forms-epochs': '1', '--forms-batches': '1'}}
SHORT_RUN = ['trainer.max_epochs=1', 'trainer.max_steps=2']
SMALL_DATA = ['data.batch_size=8', 'data.num_workers=0', 'trainer.threads=1', 'precision=32-true', 'device=cpu']
SMALL_NET = 'model={name: vit_tiny_cifar10, depth: 1, dim: 32, heads: 2, patch_size: 8}'
SMALL_CONFIGS = {
    'quickstart': ['data.train_size=32', 'data.val_size=16'],
    'gpt2_tiny': ['model={name: gpt2_tiny}', 'data.train_size=32', 'data.val_size=16'],
    'glm_tiny': ['model={name: glm_tiny}', 'data.train_size=32', 'data.val_size=16'],
    'llama_tiny': ['model={name: llama_tiny}', 'data.train_size=32', 'data.val_size=16'],
    'bert_tiny': ['model={name: bert_tiny}'],
    'internvl_tiny': ['model={name: internvl_tiny}', 'data.train_size=32', 'data.val_size=16'],
    'resnet50_cifar10': [],
    'resnet50_cifar10_224': [SMALL_NET.replace('patch_size: 8', 'patch_size: 32')],
    'resnet50_imagefolder': ['data.root=my/images', 'model={name: resnet18}'],
    'vit_tiny_cifar10': [],
    'vit_b16_imagefolder': ['data.root=my/images', 'trainer.accumulate_grad_batches=1'],
}
# Hugging Face's configuration of vit_tiny_cifar10.
HUB_VIT = {'model_type': 'vit', 'architectures': ['ViTForImageClassification'], 'hidden_size': 192, 'num_hidden_layers': 12, 'num_attention_heads': 3, 'intermediate_size': 768, 'image_size': 32, 'patch_size': 4,
           'hidden_act': 'gelu', 'layer_norm_eps': 1e-6, 'num_channels': 3, 'qkv_bias': True, 'id2label': {str(i): f'class {i}' for i in range(10)}}
WRITES = {'--csv', '--html', '--out', '--to', '--trace', '--unsupported'}
CHECKS = {'analyze', 'baseline', 'checklist', 'compare', 'doctor', 'memory', 'plan', 'validate'}  # exit with 7 if they find a problem


def pth(path, tensors):
    """Writes fp32 tensors, {name: (shape, bytes)}, as torch.save writes a dictionary of tensors."""
    text = lambda s: b'X' + struct.pack('<I', len(s)) + s.encode()
    numbers = lambda ns: b'(' + b''.join(b'J' + struct.pack('<i', n) for n in ns) + b't'
    with zipfile.ZipFile(path, 'w') as archive:
        items = b''
        for key, (name, (shape, data)) in enumerate(tensors.items()):
            strides = [1]
            for n in reversed(shape[1:]): strides.insert(0, strides[0] * n)
            storage = b'(' + text('storage') + b'ctorch\nFloatStorage\n' + text(str(key)) + text('cpu') + b'J' + struct.pack('<i', len(data) // 4) + b'tQ'
            items += text(name) + b'ctorch._utils\n_rebuild_tensor_v2\n(' + storage + b'K\0' + numbers(shape) + numbers(strides[:len(shape)])
            items += b'\x89ccollections\nOrderedDict\n)RtR'
            archive.writestr(f'archive/data/{key}', data)
        archive.writestr('archive/data.pkl', b'\x80\x02}(' + items + b'u.')
        archive.writestr('archive/byteorder', 'little')
        archive.writestr('archive/version', '3\n')


def floats_of(path):
    """{name: (shape, bytes)} of the fp32 tensors of a safetensors file."""
    content = path.read_bytes()
    length = struct.unpack('<Q', content[:8])[0]
    header = json.loads(content[8:8 + length])
    data = lambda begin, end: content[8 + length + begin:8 + length + end]
    return {n: (t['shape'], data(*t['data_offsets'])) for n, t in header.items() if n != '__metadata__' and t['dtype'] == 'F32'}


class AdvisedRuns(ProgramTest):
    maxDiff = None

    def make(self, *args):
        code, out, err = run(*args, cwd=self.dir, timeout=600)
        self.assertIn(code, (0, 7), (args, out, err))
        return out

    def make_hub_folder(self, name):
        """A folder of Hugging Face with the weights of llama_tiny, whose tokens are bytes."""
        folder = self.dir / 'hub' / name
        folder.mkdir(parents=True)
        self.make(BIN / 'npu_tool', 'weights', '--from', 'outputs/base/version_0', '--to', folder / 'model.safetensors', '--as', 'hf')
        (folder / 'config.json').write_text(json.dumps({
            'model_type': 'llama', 'architectures': ['LlamaForCausalLM'], 'vocab_size': 256, 'hidden_size': 64, 'intermediate_size': 176, 'num_hidden_layers': 2, 'num_attention_heads': 4,
            'num_key_value_heads': 2, 'max_position_embeddings': 64, 'rms_norm_eps': 1e-5, 'rope_theta': 10000.0, 'hidden_act': 'silu', 'tie_word_embeddings': False, 'eos_token_id': 0}))
        printable = [*range(33, 127), *range(0xa1, 0xad), *range(0xae, 0x100)]
        others = iter(range(0x100, 0x200))
        vocabulary = {chr(byte if byte in printable else next(others)): byte for byte in range(256)}
        (folder / 'tokenizer.json').write_text(json.dumps({
            'version': '1.0', 'added_tokens': [], 'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': True}, 'decoder': {'type': 'ByteLevel'},
            'model': {'type': 'BPE', 'vocab': vocabulary, 'merges': []}}))
        (folder / 'tokenizer_config.json').write_text(json.dumps({'eos_token': chr(0x100), 'chat_template': '{% for m in messages %}{{ m.role[0] }}: {{ m.content }}\n{% endfor %}'}))

    def make_averaged(self):
        """Creates the runs and files that the commands average."""
        self.make(BIN / 'train_app', 'configs/vit_b16_imagefolder.yaml', 'trainer.max_epochs=5', 'checkpoint.save_top_k=-1', 'output.name=vit')
        self.make(BIN / 'npu_tool', 'average', 'outputs/vit/version_0', '--last', '5', '--to', 'mean.safetensors')
        (self.dir / 'a').symlink_to(self.dir / 'outputs/vit')
        for name in ('b.safetensors', 'c.pth'): self.make(BIN / 'npu_tool', 'weights', '--from', 'outputs/vit/version_0', '--to', name)

    def make_files(self):
        """Creates all files that the commands name, with as few runs as possible."""
        d = self.dir
        for split in ('train', 'val', 'test'):
            for label in ('cat', 'dog'):
                (d / 'my/images' / split / label).mkdir(parents=True)
                for i in range(4): png(d / 'my/images' / split / label / f'{i}.png', 40, (60 * i, 90, 20))
        png(d / 'cat.jpg', 48, (200, 10, 10))
        png(d / 'dog.png', 48, (10, 10, 200))
        cifar10(d / 'data/cifar-10-batches-bin')
        (d / 'my_project').mkdir()
        (d / 'my_project/a.py').write_text('import torch\nprint(torch.cuda.is_available())\n')
        (d / 'points.csv').write_text('ranks,link,strategy,seconds\n1,1Gbit/s,single,0.1\n2,1Gbit/s,ddp,0.2\n')
        (d / 'configs').mkdir()
        for name, smaller in SMALL_CONFIGS.items():
            small = self.make(BIN / 'train_app', SOURCE / f'configs/{name}.yaml', SMALL_NET, *smaller, *SMALL_DATA, '--print-config')
            (d / f'configs/{name}.yaml').write_text(small)
        (d / 'docs').mkdir()
        for name in ('data', 'precision', 'checkpoints'): shutil.copy(SOURCE / f'docs/{name}.md', d / 'docs')
        self.make(BIN / 'npu_tool', 'tokenize', 'docs/data.md', '--to', 'data/docs')
        self.make(BIN / 'train_app', 'configs/gpt2_tiny.yaml', *SHORT_RUN, 'data={name: tokens, train: data/docs/train.bin, context: 64}', 'output.name=docs')
        self.make(BIN / 'train_app', 'configs/llama_tiny.yaml', *SHORT_RUN, 'output.name=base')
        self.make(BIN / 'train_app', 'configs/llama_tiny.yaml', *SHORT_RUN, 'model={name: llama_tiny, weights: outputs/base/version_0, lora: {targets: [attention]}}', 'output.name=tuned')
        self.make(BIN / 'npu_tool', 'weights', '--from', 'outputs/tuned/version_0', '--to', 'adapter', '--as', 'peft')
        self.make(BIN / 'train_app', 'configs/bert_tiny.yaml', *SHORT_RUN, 'output.name=masked')
        self.make(BIN / 'train_app', 'configs/glm_tiny.yaml', *SHORT_RUN, 'output.name=glm')
        self.make(BIN / 'train_app', 'configs/internvl_tiny.yaml', *SHORT_RUN, 'output.name=answers')
        for name in ('llama-3', 'qwen2', 'gpt2'): self.make_hub_folder(name)
        (d / 'letter.txt').write_text('Dear reader\n')
        (d / 'chat.json').write_text('[{"role": "user", "content": "Hello"}]')
        (d / 'prompts.txt').write_text('The old dog\nA\n')
        for name in ('my.yaml', 'a.yaml', 'b.yaml'): shutil.copy(d / 'configs/quickstart.yaml', d / name)
        (d / 'my.yaml').write_text((d / 'my.yaml').read_text().replace('train_transforms: []', 'train_transforms: [{name: random_crop, size: 32, padding: 4}]'))
        self.make(BIN / 'train_app', 'configs/quickstart.yaml', *SHORT_RUN, 'dump={enabled: true, level: module, dir: dump_a}', 'output.name=small')
        self.make(BIN / 'train_app', 'configs/quickstart.yaml', *SHORT_RUN, 'model={name: resnet18, num_classes: 1000, allow_unused_classes: true}', 'output.name=resnet50_generated')
        self.make(BIN / 'train_app', 'configs/quickstart.yaml', '--nproc', '2', *SHORT_RUN, 'dump={enabled: true, level: module, dir: dump_ranks}', 'output.dir=""')
        (d / 'outputs/resnet50_cifar10').symlink_to(d / 'outputs/resnet50_generated')
        vit = 'outputs/vit_b16_imagenet/version_0'
        self.make(BIN / 'train_app', 'configs/quickstart.yaml', *SHORT_RUN, 'model={name: vit_tiny_cifar10}', 'output.name=vit_b16_imagenet')
        (d / 'vit-base-patch16-224').mkdir()
        (d / 'vit-base-patch16-224/config.json').write_text(json.dumps(HUB_VIT))
        for to, names in (('vit.safetensors', 'torchvision'), ('vit.pth', 'torchvision'), ('vit-base-patch16-224/model.safetensors', 'hf4')):
            self.make(BIN / 'npu_tool', 'weights', '--from', vit, '--to', to, '--as', names)
        self.make(BIN / 'train_app', 'configs/vit_b16_imagefolder.yaml', *SHORT_RUN, 'output.name=small_vit')
        self.make(BIN / 'npu_tool', 'weights', '--from', 'outputs/small_vit/version_0', '--to', 'vit_b_16.pth', '--as', 'torchvision')
        self.make_averaged()
        self.make(BIN / 'train_app', 'configs/resnet50_imagefolder.yaml', *SHORT_RUN, 'output.name=my_run')
        self.make(BIN / 'train_app', 'configs/quickstart.yaml', *SHORT_RUN, 'monitor.every=1', 'output.name=a')
        (d / 'outputs/b').symlink_to(d / 'outputs/a')
        shutil.copytree(d / 'outputs/resnet50_generated/version_0', d / 'outputs/resnet50_generated/version_1')
        (d / 'reference').mkdir()
        for name in ('dump_b', 'dump_new', 'dump_npu', 'dump_gpu', 'dump_cpu', 'dump_fp32', 'reference/dump'): (d / name).symlink_to(d / 'dump_a')
        weights = next((d / 'outputs/resnet50_generated/version_0/checkpoints').glob('last/model.safetensors'))
        shutil.copy(weights, d / 'resnet50.safetensors')
        pth(d / 'resnet50.pth', floats_of(weights))
        self.make(BIN / 'npu_tool', 'bench', 'configs/quickstart.yaml', '--what', 'step', '--steps', '1', '--no-machine', '--out', 'today.json')
        for name in ('monday.json', 'tuesday.json'): shutil.copy(d / 'today.json', d / name)
        self.make(BIN / 'npu_tool', 'baseline', 'configs/quickstart.yaml', *SHORT_RUN[:1], '--out', 'cpu.json')
        shutil.copy(d / 'cpu.json', d / 'npu.json')

    def small(self, command, number):
        """The command with small files and values, as this test runs it."""
        program, words = command[0], [STANDS_FOR.get(w, w) for w in command[1:]]
        words = [f'dumps/{number}' if w in ('my_project_npu', 'OUT') else w for w in words]
        # Gives each command files of its own: two commands run at a time, and several texts name the same file to write.
        words = [f'written/{number}/{w}' if before in WRITES else w for before, w in zip(['', *words], words)]
        words = [re.sub(r'^trainer\.devices=X$', 'trainer.devices=2', w) for w in words]
        words = [re.sub(r'^dump\.dir=.*', f'dump.dir=dumps/{number}', w) for w in words]
        # An X after --source means a folder, not a device as elsewhere.
        if '--source' in words and words[words.index('--source') + 1] == NPU: words[words.index('--source') + 1] = 'my_project'
        if words[0] == 'generate' and '--messages' in words and '--checkpoint' in words: words[words.index('--checkpoint') + 1] = 'outputs/base/version_0'
        if words[0] == 'generate' and 'hub' in ' '.join(words): words += ['--max-new-tokens', '4'] if '--max-new-tokens' not in words else []
        if '--image' in words and words[0] != 'generate': words[words.index('--image') + 1] = '32'
        if '--nproc' in words: words[words.index('--nproc') + 1] = '2'
        if words[0] == 'plan' and '--ranks' in words: words[words.index('--ranks') + 1] = '1,2'
        if '--batch' in words: words[words.index('--batch') + 1] = '2'
        if '--num-classes' in words: words[words.index('--num-classes') + 1] = '1000'
        if '--help' in words or '--version' in words: return [program, *words]
        if program == 'train_app':
            if any(w.startswith('dump.') for w in words): words.append('dump.enabled=true')  # the small file has dumps switched off
            if '--verify-resume' in words: words += ['--verify-steps', '1']
            elif '--resume' in words: words += SHORT_RUN + ['output.name=small']
            elif not any(w.startswith('--print') for w in words): words += SHORT_RUN + ['checkpoint.save_top_k=0', f'output.dir=out{number}']
            return [program, *words]
        if words[0] == 'memory' and '--check' in words: return [program, *words, f'device={NPU}']
        if not {'--compare', '--cards', '--operators'} & set(words):
            for option, value in SHORTER.get(words[0], {}).items():
                if option not in words: words += [option, value] if value else [option]
        if words[0] == 'find-lr' and '--steps' in words: words[words.index('--steps') + 1] = '20'
        if 'null' in words: words[words.index('--pairs') + 1] = '6'
        config = any(w.endswith('.yaml') for w in words)
        if words[0] == 'bench' and not config and not {'--model', '--compare', '--cards'} & set(words):
            words += ['--model', 'resnet18', '--image', '32', '--batch', '2']
        if words[0] in ('baseline', 'checklist', 'validate') and config: words += SHORT_RUN[:1]
        return [program, *words]

    def problem(self, name, small):
        """Runs a command. Returns '' if it succeeds; a check may also find a problem, for instance because a device does not exist."""
        for word in small:
            if word.startswith('written/'): (self.dir / word).parent.mkdir(parents=True, exist_ok=True)
        code, out, err = run(BIN / small[0], *small[1:], cwd=self.dir, timeout=600)
        good = code == 0 or (code == 7 and {'--leave-out', *CHECKS} & set(small))
        return '' if good else f'{name}: ran as {" ".join(small)}: {code}\n{out[-500:]}{err[-1500:]}'

    @in_full
    def test_every_advised_command_runs(self):
        self.make_files()
        commands = {' '.join(c): c for c in advice.commands(advice.Options())}
        self.assertEqual(set(NOT_RUN) - set(commands), set(), 'no text names these any more; remove them from NOT_RUN')
        jobs = {}
        for name, command in sorted(commands.items()):
            if name in NOT_RUN: continue
            small = self.small(command, len(jobs))
            if not SIM_NPU and ('sim_npu' in ' '.join(small) or '--check' in small): continue
            jobs.setdefault(re.sub(r'(out|dumps/|written/)\d+', '', ' '.join(small)), (name, small))

        resumed = [j for j in jobs.values() if '--resume' in j[1]]  # these use one folder, so they run one at a time
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            told = list(pool.map(lambda j: self.problem(*j), [j for j in jobs.values() if j not in resumed]))
        told += [self.problem(*j) for j in resumed]
        self.assertGreater(len(jobs), 60)
        self.assertEqual([t for t in told if t], [])

    def test_a_command_that_does_not_run_is_reported(self):
        for text in ('npu_tool bench --model resnet50 --what no_such_section', 'npu_tool summary --model no_such_net', 'train_app no_such.yaml trainer.max_steps=2',
                     'npu_tool predict', 'npu_tool summary --layer'):
            with self.subTest(text): self.assertIn(text + ': ran as', self.problem(text, self.small(text.split(), 0)))

    def test_every_script_that_a_text_names_is_run_by_a_test_or_listed(self):
        named = set()
        for path in advice.files():
            if path.parts[-2] == 'scripts': continue
            named |= set(re.findall(r'(?<![\w/.])scripts/([a-z_]+)(?![\w./])', path.read_text(errors='replace')))
        known = {p.name for p in (SOURCE / 'scripts').iterdir() if p.is_file() and '.' not in p.name}
        self.assertEqual((named & known) - set(SCRIPTS), set())
        self.assertEqual(set(SCRIPTS) - known, set())


if __name__ == '__main__': main()
